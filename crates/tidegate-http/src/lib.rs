//! Rate limits for whoever speaks HTTP: the tower layer, the gateway, and front ends to come.
//!
//! - **Who decides**: a [`Gate`] is asked about each request. [`RuleGate`] keeps the limits of rules,
//!   [`KeyGate`] those that a program has built, for any [key] of a request; [`Open`] keeps none.
//! - **Whom a request is from**: [`Trusted`] knows whose word on that is taken, and in which header.
//! - **What clients are told**: [`Told`] is put beside what the answer says itself of limits, [`refusal`]
//!   is the whole answer to a request that may not go on. [`Answers`] has the settings of all that.
//! - **What answers change**: [`Answers::settle`] brings what was counted to what an answer says.
//!
//! A request goes through it like this:
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use tidegate_http::{Answers, Asked, Gate, Told, refusal};
//!
//! async fn serve<G: Gate<Asked>>(gate: &G, answers: &Answers, request: Request<()>) -> Response<Bytes> {
//!     let asked = Asked::new(request.into_parts().0, None);
//!     let admission = gate.admit(&asked, answers.asking(&asked)).await;
//!     if !admission.verdict.allowed {
//!         return refusal(answers, &admission.verdict, &asked);
//!     }
//!     let told = Told::new(answers, &admission.verdict, &asked);
//!     let mut held = match admission.turn {
//!         Some(turn) => Some(turn.await), // a limit that shapes says when
//!         None => admission.held,
//!     };
//!     let (mut answer, body) = Response::new(Bytes::from("hello")).into_parts();
//!     if let Some(held) = &mut held {
//!         answers.settle(held, &answer);
//!     }
//!     if let Some(told) = told {
//!         told.put(answers, &mut answer.headers);
//!     }
//!     Response::from_parts(answer, body) // `held` is to be kept until this has been sent
//! }
//! # let _ = serve::<tidegate_http::Open>;
//! ```
//!
//! What is not here: sockets, an HTTP library, a runtime; and arithmetic, which is the engine's.

mod answers;
mod asked;
mod gate;
pub mod key;
mod refusal;
mod room;
mod told;
mod trusted;

pub use answers::{Answers, RefusedBody};
pub use asked::Asked;
pub use gate::{Asking, Gate, KeyGate, Open, RuleGate};
pub use refusal::{Refusals, refusal};
pub use room::Room;
pub use told::Told;
pub use trusted::{Forwarding, NoNetwork, Trusted};
