//! What there is to say and to do once the service has answered.

use std::sync::Arc;

use http::Response;
use tidegate::{Going, Held, Turn, Verdict};
use tidegate_http::{Asked, Told};

use crate::body::LimitBody;
use crate::settings::Settings;

/// What there is to say and to do once the service has answered.
pub(crate) struct Ending {
    settings: Arc<Settings>,
    told: Option<Told>,
    pub(crate) held: Option<Held>,
    /// Until the service has begun with it.
    pub(crate) going: Option<Going>,
}

impl Ending {
    /// Of a request that was admitted; `None` if there is nothing to say or to do. What waits for its
    /// turn is held later.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        verdict: &Verdict,
        asked: &Asked,
        held: Option<Held>,
        turn: Option<&Turn>,
    ) -> Option<Self> {
        let told = Told::new(&settings.answers, verdict, asked);
        if told.is_none() && held.is_none() && turn.is_none() {
            return None;
        }
        let going = held.as_ref().and_then(Held::going);
        Some(Self { settings: Arc::clone(settings), told, held, going })
    }

    /// Whether nobody has to reach the service before it.
    pub(crate) fn is_first(&self) -> bool {
        self.going.as_ref().is_none_or(Going::is_first)
    }

    /// The service's answer with what is to be said.
    pub(crate) fn finish<B>(mut self, answer: Response<B>) -> Response<LimitBody<B>> {
        let (mut parts, body) = answer.into_parts();
        let answers = &self.settings.answers;
        if let Some(held) = &mut self.held {
            answers.settle(held, &parts);
        }
        if let Some(told) = &self.told {
            told.put(answers, &mut parts.headers);
        }
        let held = self.held.filter(Held::has_permits);
        Response::from_parts(parts, LimitBody::inner(body, held))
    }
}
