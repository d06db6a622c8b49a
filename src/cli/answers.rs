//! The flags of `serve` about what answers say besides the verdict. With `--compat reference` the variables of the
//! reference server for the same are heeded too.

use super::{Failure, rule_files::Compat};
use crate::grpc::Extras;
use clap::Args;

/// What answers say besides the verdict and the statuses.
#[derive(Args)]
pub(super) struct Answers {
    /// Send dynamic metadata with every answer: what was asked, which rules are over and when they will pass.
    #[arg(long, env = "TIDEGATE_DYNAMIC_METADATA")]
    dynamic_metadata: bool,
}

impl Answers {
    /// What the flags say, and the reference server's variables if it is to be as there.
    pub(super) fn extras(&self, compat: Option<Compat>) -> Result<Extras, Failure> {
        let mut extras = Extras { dynamic_metadata: self.dynamic_metadata };
        if compat == Some(Compat::Reference) {
            add_variables(&mut extras, |name| std::env::var(name).ok())?;
        }
        Ok(extras)
    }
}

/// What the reference server's variables switch on.
fn add_variables(extras: &mut Extras, variable: impl Fn(&str) -> Option<String>) -> Result<(), Failure> {
    let is_on = |name| boolean(name, variable(name).as_deref());
    extras.dynamic_metadata |= is_on("RESPONSE_DYNAMIC_METADATA")?;
    Ok(())
}

/// A boolean as the reference server reads it.
fn boolean(name: &str, value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None | Some("" | "0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
        Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
        Some(other) => Err(Failure(format!("the variable {name} is {other:?}; write true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras(variables: &[(&str, &str)]) -> Result<Extras, String> {
        let variable = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
        let mut extras = Extras::default();
        add_variables(&mut extras, variable).map_err(|failure| failure.to_string())?;
        Ok(extras)
    }

    #[test]
    fn the_reference_servers_variables_switch_on_what_they_do_there() {
        assert_eq!(extras(&[]), Ok(Extras::default()));
        assert_eq!(extras(&[("RESPONSE_DYNAMIC_METADATA", "T")]), Ok(Extras { dynamic_metadata: true }));
        assert_eq!(
            extras(&[("RESPONSE_DYNAMIC_METADATA", "yes")]),
            Err("the variable RESPONSE_DYNAMIC_METADATA is \"yes\"; write true or false".to_owned())
        );
    }
}
