//! The HTTP front end, asked over real connections.

mod admin;
mod auth;
mod check;
mod hostile;
mod info;
mod keys;
mod lyft;
mod nginx;
mod reserve;
mod schema;
mod support;
