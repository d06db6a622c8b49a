//! `tidegate completions`: completion scripts for shells.

use crate::cli::Failure;
use clap::{Args, Command};
use clap_complete::Shell;
use std::process::ExitCode;

/// Prints the completion script of a shell
///
/// For bash: `tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate`.
/// For zsh: write it to a file `_tidegate` in a directory of your $fpath.
/// For fish: write it to ~/.config/fish/completions/tidegate.fish.
///
/// The script completes commands and flags. To complete rules and domains of a running server too
/// (`tidegate ctl`), add a line to the configuration of the shell instead:
///
///   bash  ~/.bashrc                   source <(TIDEGATE_COMPLETE=bash tidegate)
///   zsh   ~/.zshrc                    source <(TIDEGATE_COMPLETE=zsh tidegate)
///   fish  ~/.config/fish/config.fish  TIDEGATE_COMPLETE=fish tidegate | source
///
/// TIDEGATE_ADDR and TIDEGATE_TOKEN name the server and the caller.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct Completions {
    /// Shell to print the script for.
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, mut program: Command) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "tidegate", &mut script);
        crate::cli::output::table::print(&String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}
