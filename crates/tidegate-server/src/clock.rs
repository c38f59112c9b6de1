//! The clock of a service: the machine's, or one that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tidegate::{Clock, ManualClock, SystemClock, Timestamp};

/// The clock of a service.
#[derive(Clone, Debug)]
pub enum ServiceClock {
    /// The machine's.
    System(SystemClock),
    /// One that is moved by hand.
    Manual(ManualClock),
}

impl ServiceClock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self::System(SystemClock::new())
    }
}

/// What [`ServiceClock`] sleeps with.
#[derive(Debug)]
pub enum ServiceSleep {
    /// By the machine's clock.
    System(<SystemClock as Clock>::Sleep),
    /// By hand.
    Manual(Pin<Box<<ManualClock as Clock>::Sleep>>),
}

impl Future for ServiceSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::System(sleep) => Pin::new(sleep).poll(context),
            Self::Manual(sleep) => sleep.as_mut().poll(context),
        }
    }
}

impl Clock for ServiceClock {
    type Sleep = ServiceSleep;

    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }

    fn sleep_until(&self, moment: Timestamp) -> ServiceSleep {
        match self {
            Self::System(clock) => ServiceSleep::System(clock.sleep_until(moment)),
            Self::Manual(clock) => ServiceSleep::Manual(Box::pin(clock.sleep_until(moment))),
        }
    }
}
