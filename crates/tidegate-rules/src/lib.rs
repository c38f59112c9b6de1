//! Rate-limit rules: text in, compiled rules out.
//!
//! The format is Lyft's, and more: see the rule reference in `docs/`. This crate reads no files,
//! opens no sockets and knows no time; [`Rules::load`] takes the text of files and gives rules, or
//! everything that is wrong with them at once, [`Rules::find`] says which limits a request
//! meets and which keys they count, and [`Rules::map_http`] what to ask it for an HTTP request.

mod diagnostic;
mod draft;
mod exempt;
mod explain;
mod field;
mod flat;
mod glob;
mod http;
mod lyft;
mod matching;
mod read;
mod rule;
mod rules;
mod schema;
mod tree;
mod yaml;

pub use diagnostic::{Diagnostic, Paint, Report, Severity};
pub use exempt::Exempt;
pub use explain::{Candidate, End, Explanation, LimitAtEnd, Step};
pub use flat::{FlatEntry, read_flat};
pub use http::{
    HttpDescriptor, HttpExplained, HttpMismatch, HttpOutcome, HttpRequest, Mapped,
    MappedDescriptor, PlainRequest, RouteScratch, RouteTable, Settling, parse_statuses,
};
pub use lyft::check_lyft;
pub use matching::{Descriptor, Entry, Found, Met, Override, Reached, Way};
pub use rule::{Excess, OnStoreError, Origin, Rule, Unit, Unlimited, Zone};
pub use rules::{File, Loaded, Options, Rules};
pub use schema::{json_schema, reference, reference_titles};
pub use yaml::Place;
