//! A reverse proxy that keeps rate limits.
mod scan;
