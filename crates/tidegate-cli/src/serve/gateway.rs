//! The gateway beside the service.

use std::sync::Arc;

use tidegate::rules::Rules;
use tidegate_gateway::{Gateway, GatewayError};
use tidegate_server::{Service, ServiceGate};
use tracing::warn;

use crate::failure::{Failure, chain};
use crate::settings::GatewayChoice;

/// Starts the gateway that was asked for, and says which domain's rules hold for it.
pub(super) fn start(
    choice: &GatewayChoice,
    service: &Arc<Service>,
) -> Result<(Gateway, String), Failure> {
    let domain = service.limits().with_generation(|_, rules| domain_of(choice, rules))?;
    let gate = ServiceGate::new(Arc::clone(service), domain.as_str());
    let gateway = Gateway::start(choice.config.clone(), gate).map_err(|error| failure(&error))?;
    let watched = gateway.watch();
    service.show_gateway(move || watched.stats());
    Ok((gateway, domain))
}

/// The domain whose rules hold: the one that was named, or the only one that knows of HTTP.
fn domain_of(choice: &GatewayChoice, rules: &Rules) -> Result<String, Failure> {
    let mut known: Vec<&str> = rules.domains().collect();
    known.sort_unstable();
    let domain = match &choice.domain {
        Some(domain) if rules.knows(domain) => domain,
        Some(domain) => {
            return Err(Failure::new(format!("the rules have no domain `{domain}`"))
                .hint(format!("--gateway-domain is one of {}", known.join(", "))));
        }
        None => {
            let maps: Vec<&str> =
                known.iter().copied().filter(|domain| rules.maps_http(domain)).collect();
            match (&maps[..], &known[..]) {
                ([only], _) | ([], [only]) => *only,
                _ => {
                    return Err(Failure::new("the rules have several domains for a gateway")
                        .hint(format!("say which with --gateway-domain: {}", known.join(", "))));
                }
            }
        }
    };
    warn_if_unlimited(domain, rules);
    Ok(domain.to_owned())
}

/// Says so if rules have nothing to say to a gateway: also when they have just lost it.
pub(super) fn warn_if_unlimited(domain: &str, rules: &Rules) {
    if !rules.maps_http(domain) {
        warn!(
            domain,
            "the gateway limits nothing: the domain has no `http` section that says how requests \
             become descriptors (docs/rules.md)"
        );
    }
}

fn failure(error: &GatewayError) -> Failure {
    let failure = Failure::new(chain(error));
    match error {
        GatewayError::Bind { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            failure.hint("another program listens there; choose with --gateway ADDR")
        }
        _ => failure,
    }
}
