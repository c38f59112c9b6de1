//! What holds for every limit and every history.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests say what they expect by unwrapping it"
)]

mod model;
mod support;

#[path = "properties/admissions.rs"]
mod admissions;
#[path = "properties/answers.rs"]
mod answers;
#[path = "properties/follows_model.rs"]
mod follows_model;
#[path = "properties/forgetting.rs"]
mod forgetting;
#[path = "properties/forms.rs"]
mod forms;
#[path = "properties/give_back.rs"]
mod give_back;
#[path = "properties/inherit.rs"]
mod inherit;
#[path = "properties/joint.rs"]
mod joint;
#[path = "properties/permits.rs"]
mod permits;
#[path = "properties/warm_up.rs"]
mod warm_up;
