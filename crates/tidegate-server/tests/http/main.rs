//! The HTTP front end, asked over real connections.

mod admin;
mod auth;
mod check;
mod docs;
mod hostile;
mod info;
mod keys;
mod lyft;
mod nginx;
mod random;
mod reserve;
mod schema;
mod support;
