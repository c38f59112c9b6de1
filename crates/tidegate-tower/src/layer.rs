//! The layer: what decides, and how it is told.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode, response};
use tidegate::headers::Field;
use tidegate::rules::{File, Options, Rules};
use tidegate::{Clock, Key, Limiter, RuleError, RuleLimiter, Store, Verdict};
use tidegate_http::{
    Answers, Asked, Forwarding, KeyGate, NoNetwork, RefusedBody, RuleGate, Trusted,
};
use tower_layer::Layer;

use crate::service::TidegateService;
use crate::settings::Settings;

/// Puts limits before a service of HTTP requests.
///
/// ```
/// use tidegate::{Limit, Limiter};
/// use tidegate_tower::{TidegateLayer, key};
///
/// // 5 requests per second with bursts of 10, for each address.
/// let limiter = Limiter::new(Limit::per_second(5).burst(10))?;
/// let layer = TidegateLayer::new(limiter, key::client_ip()).pass_preflight();
/// # let _ = layer;
/// # Ok::<(), tidegate::BuildError>(())
/// ```
///
/// A layer and its clones share their limits. What was said last holds.
#[must_use = "a layer that is not put before a service limits nothing"]
pub struct TidegateLayer<G = RuleGate> {
    gate: G,
    settings: Arc<Settings>,
}

/// Rules that a layer cannot be made of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// The file cannot be read.
    #[error("reading rules from `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// They are wrong; all that is wrong with them, with line and column.
    #[error("{0}")]
    Wrong(String),
    /// They cannot be enforced.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// Nobody can tell which of the domains is meant.
    #[error(
        "the rules have {0} domains and the layer is for one; name it with `TidegateLayer::rules`"
    )]
    Domains(usize),
}

impl TidegateLayer {
    /// Limits from the text of a rules file with one domain, kept in memory.
    ///
    /// # Errors
    /// If the rules are wrong, which is told with line, column and hint.
    pub fn from_rules(text: &str) -> Result<Self, RulesError> {
        Self::load("rules", text)
    }

    /// Limits from a rules file with one domain, kept in memory. The file is read once; to follow its
    /// changes build a `RuleLimiter` and [`replace`](RuleLimiter::replace) its rules, as
    /// `tidegate::files` shows.
    ///
    /// # Errors
    /// If the file cannot be read, or the rules are wrong, which is told with line, column and hint.
    pub fn from_rules_file(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| RulesError::Read { path: path.to_owned(), source })?;
        Self::load(&path.to_string_lossy(), &text)
    }

    fn load(name: &str, text: &str) -> Result<Self, RulesError> {
        let mut options = Options::default();
        options.check_time_zone = tidegate::check_time_zone;
        let loaded = Rules::load(&[File { name, text }], &options);
        let rules = loaded.rules.ok_or_else(|| RulesError::Wrong(loaded.report.to_string()))?;
        let domains: Vec<String> = rules.domains().map(str::to_owned).collect();
        let [domain] = &domains[..] else { return Err(RulesError::Domains(domains.len())) };
        Ok(Self::rules(RuleLimiter::new(rules)?, domain.as_str()))
    }
}

impl<S: Store, C: Clock> TidegateLayer<RuleGate<S, C>> {
    /// Limits from the rules of a domain: any store, any clock, rules that are replaced meanwhile.
    pub fn rules(limiter: RuleLimiter<S, C>, domain: impl Into<Arc<str>>) -> Self {
        Self::with_gate(RuleGate::new(limiter, domain))
    }
}

impl<S: Store, C: Clock, E> TidegateLayer<KeyGate<S, C, E>> {
    /// Limits that were built in the program, for the [key](crate::key) that a function finds in a
    /// request. Requests without a key are not counted, unless [said otherwise](Self::deny_missing).
    pub fn new<K>(limiter: Limiter<S, C>, key: E) -> Self
    where
        E: Fn(&Asked) -> Option<K> + Clone + Send + Sync + 'static,
        K: Key + Send + Sync,
    {
        Self::with_gate(KeyGate::new(limiter, key))
    }

    /// Refuses requests that have no key.
    pub fn deny_missing(self) -> Self {
        Self { gate: self.gate.deny_missing(), settings: self.settings }
    }
}

impl<G> TidegateLayer<G> {
    /// Limits of any kind.
    pub fn with_gate(gate: G) -> Self {
        Self { gate, settings: Arc::default() }
    }

    /// Who decides.
    pub fn gate(&self) -> &G {
        &self.gate
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Changes any of the settings of answers; the other methods are words for some of them.
    pub fn answers(self, change: impl FnOnce(&mut Answers)) -> Self {
        self.set(|settings| change(&mut settings.answers))
    }
}

/// Who a request is from.
impl<G> TidegateLayer<G> {
    /// Finds the address of the other end of the connection. Without this it is a
    /// [`PeerAddr`](crate::PeerAddr) or a `SocketAddr` among the extensions of the request. In axum:
    ///
    /// ```
    /// # use std::net::SocketAddr;
    /// # use tidegate::{Limit, Limiter};
    /// # use tidegate_tower::{TidegateLayer, key};
    /// # let limiter = Limiter::new(Limit::per_second(5))?;
    /// use axum::extract::ConnectInfo;
    ///
    /// // Serve with `app.into_make_service_with_connect_info::<SocketAddr>()`.
    /// let layer = TidegateLayer::new(limiter, key::client_ip())
    ///     .peer(|parts| Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()));
    /// # let _ = layer;
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    ///
    /// In tonic it is `parts.extensions.get::<TcpConnectInfo>()?.remote_addr()`.
    pub fn peer(self, find: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.peer = Some(Arc::new(find)))
    }

    /// Takes the word of these proxies (addresses, or networks such as `10.0.0.0/8`) on who a request
    /// is from, in this header. Nobody's word is taken otherwise. Choose the header that the proxies
    /// set themselves: in another one clients could say what they like.
    ///
    /// # Errors
    /// If one of them is neither.
    pub fn trust<T: AsRef<str>>(
        self,
        proxies: impl IntoIterator<Item = T>,
        header: Forwarding,
    ) -> Result<Self, NoNetwork> {
        let trusted = Trusted::parse(proxies, header)?;
        Ok(self.set(|settings| settings.trusted = trusted))
    }
}

/// Which requests count, and how much.
impl<G> TidegateLayer<G> {
    /// Lets the preflight requests of browsers through uncounted: a script cannot handle their refusal.
    pub fn pass_preflight(self) -> Self {
        self.answers(|answers| answers.exempt_preflight = true)
    }

    /// Lets requests for exactly this path through uncounted, such as `/healthz`.
    pub fn pass_path(self, path: impl Into<String>) -> Self {
        self.answers(|answers| answers.exempt_paths.push(path.into()))
    }

    /// Lets requests through uncounted that a test is true of.
    pub fn pass_if(self, test: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        self.answers(|answers| _ = answers.exempt_if(test))
    }

    /// What a request costs; one if not said. Rules that give a cost themselves have the last word.
    pub fn cost(self, cost: impl Fn(&Asked) -> u64 + Send + Sync + 'static) -> Self {
        self.answers(|answers| _ = answers.cost_of(cost))
    }

    /// What a request really cost is said by the answer, in this header: what was taken before is then
    /// settled at that. Without the header, or with something that is no number, it stays.
    pub fn cost_from(self, header: HeaderName) -> Self {
        self.answers(|answers| answers.cost_header = Some(header))
    }

    /// Gives back what a request took if a test is true of its answer: only some outcomes count.
    ///
    /// ```
    /// # use tidegate::{Limit, Limiter};
    /// # use tidegate_tower::{TidegateLayer, key};
    /// # let limiter = Limiter::new(Limit::per_minute(5))?;
    /// // Only failed logins count.
    /// let layer = TidegateLayer::new(limiter, key::client_ip())
    ///     .refund_if(|answer| answer.status != http::StatusCode::UNAUTHORIZED);
    /// # let _ = layer;
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn refund_if(
        self,
        test: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.answers(|answers| _ = answers.refund_if(test))
    }

    /// Gives back what a request took if its answer has one of these statuses.
    pub fn refund_statuses(self, statuses: RangeInclusive<u16>) -> Self {
        self.answers(|answers| answers.free_statuses.push(statuses))
    }
}

/// How clients are told.
impl<G> TidegateLayer<G> {
    /// Says nothing of limits on answers to those who are admitted.
    pub fn only_on_refusal(self) -> Self {
        self.answers(|answers| answers.on_allowed = false)
    }

    /// The body of refusals, and what it is; a problem as JSON if not said.
    pub fn body(self, content_type: HeaderValue, text: impl Into<Bytes>) -> Self {
        let body = RefusedBody { content_type, text: text.into() };
        self.answers(|answers| answers.refused_body = Some(body))
    }

    /// The status of refusals; 429 if not said. What nobody could decide on is 503 in any case, and
    /// gRPC has statuses of its own.
    pub fn status(self, status: StatusCode) -> Self {
        self.answers(|answers| answers.refused_status = status)
    }

    /// Sends a header under another name.
    pub fn rename(self, field: Field, name: HeaderName) -> Self {
        self.answers(|answers| _ = answers.rename(field, name))
    }

    /// Does not send a header.
    pub fn without(self, field: Field) -> Self {
        self.answers(|answers| _ = answers.leave_out(field))
    }

    /// Tells in `X-RateLimit-Reset` the time since 1970, as GitHub does, instead of seconds from now.
    pub fn reset_as_epoch(self) -> Self {
        self.answers(|answers| answers.reset_as_epoch = true)
    }

    /// Tells refused clients to come back up to so much later, in whole seconds and at random, so that
    /// they do not all come back together.
    pub fn retry_jitter(self, most: Duration) -> Self {
        self.answers(|answers| answers.jitter_seconds = most.as_secs())
    }

    /// Lets scripts of other origins see the headers: `Access-Control-Expose-Headers` on answers to
    /// requests with an `Origin`.
    pub fn expose_headers(self) -> Self {
        self.answers(|answers| answers.expose = true)
    }

    /// Changes refusals before they are sent: another body, more headers. Those of gRPC are left as
    /// they are.
    pub fn on_refusal(
        self,
        change: impl Fn(&Verdict, &mut Response<Bytes>) + Send + Sync + 'static,
    ) -> Self {
        self.answers(|answers| _ = answers.on_refusal(change))
    }
}

impl<S, G: Clone> Layer<S> for TidegateLayer<G> {
    type Service = TidegateService<S, G>;

    fn layer(&self, inner: S) -> TidegateService<S, G> {
        TidegateService::new(inner, self.gate.clone(), Arc::clone(&self.settings))
    }
}

impl<G: Clone> Clone for TidegateLayer<G> {
    fn clone(&self) -> Self {
        Self { gate: self.gate.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<G: fmt::Debug> fmt::Debug for TidegateLayer<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TidegateLayer").field(&self.gate).field(&self.settings).finish()
    }
}
