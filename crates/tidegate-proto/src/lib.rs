//! The messages of Envoy's rate limit service.
//!
//! The .proto files are our own and small; packages, names and numbers are Envoy's, so that both
//! sides understand each other. The code made from them is kept with them: nobody who builds this
//! needs a compiler for them.
//!
//! ```
//! use tidegate_proto::{Entry, RateLimitDescriptor, RateLimitRequest};
//!
//! let entry = Entry { key: "user".into(), value: "ada".into() };
//! let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
//! let request = RateLimitRequest {
//!     domain: "api".into(),
//!     descriptors: vec![descriptor],
//!     hits_addend: 1,
//! };
//! # assert_eq!(request.descriptors.len(), 1);
//! ```
//!
//! The server's side is always there, the client's with the feature `client`. What is not here: an
//! opinion on what the messages mean, which is the server's.

// Its modules are those that the generated code expects around itself.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated code is as it is"
)]
mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                include!("generated/envoy.config.core.v3.rs");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    include!("generated/envoy.extensions.common.ratelimit.v3.rs");
                }
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                include!("generated/envoy.service.ratelimit.v3.rs");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            include!("generated/envoy.r#type.v3.rs");
        }
    }
}

pub use envoy::config::core::v3::HeaderValue;
pub use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
pub use envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
pub use envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, Quota, RateLimit, quota,
};
#[cfg(feature = "client")]
pub use envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub use envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
pub use envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
pub use envoy::r#type::v3::RateLimitUnit;

/// All of it for those who ask by reflection: a `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
