//! Who asks.

/// A way in which requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrontEnd {
    /// Envoy's protocol.
    Grpc,
    /// HTTP and JSON.
    Http,
    /// The protocol of Redis.
    Resp,
    /// HTTP requests on their way to somebody else.
    Gateway,
}

impl FrontEnd {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Grpc, Self::Http, Self::Resp, Self::Gateway];

    /// The name in metrics and settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Gateway => "gateway",
        }
    }
}
