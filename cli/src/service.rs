//! `store` and `health`: commands on the server as a whole.

use std::time::Duration;

use serde_json::json;

use super::{args::Global, failure::Failure, output::Output};

/// The timeout of a health check. It is short, because the check asks for a state.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn store(global: &Global) -> Result<(), Failure> {
    let client = global.connect().await?.with_deadline(global.long_timeout());
    let name = global.filter.as_deref().unwrap_or_default();
    let mut output = Output::new(global.output);
    for stored in client.store(name).await? {
        let took = stored
            .duration
            .and_then(|duration| Duration::try_from(duration).ok())
            .unwrap_or_default()
            .as_secs_f64();
        output.line(
            || {
                format!(
                    "{}: version {}, {} bytes, {took:.3} s",
                    stored.name, stored.version, stored.written_bytes
                )
            },
            || {
                json!({
                    "name": stored.name,
                    "version": stored.version,
                    "written_bytes": stored.written_bytes,
                    "seconds": took,
                })
            },
        )?;
    }
    output.finish()
}

pub(super) async fn health(global: &Global, service: &str) -> Result<(), Failure> {
    let serving = global
        .connect_for(HEALTH_TIMEOUT)
        .await?
        .is_serving(service)
        .await?;
    let mut output = Output::new(global.output);
    output.line(
        || if serving { "serving" } else { "not serving" }.to_owned(),
        || json!({"service": service, "serving": serving}),
    )?;
    output.finish()?;
    if serving {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}
