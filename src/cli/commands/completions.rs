//! `tidegate completions`: completion scripts for shells.

use crate::cli::Failure;
use clap::{Args, Command};
use clap_complete::Shell;
use std::process::ExitCode;

/// Prints the completion script of a shell.
///
/// For bash: `tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate`.
/// For zsh: write to a file `_tidegate` in a directory of your $fpath. For fish: ~/.config/fish/completions/tidegate.fish.
///
/// These complete commands and flags. To complete rules and domains of a running server too (`tidegate ctl`), put
/// `source <(TIDEGATE_COMPLETE=bash tidegate)` into ~/.bashrc, the same with zsh into ~/.zshrc, or for fish
/// `TIDEGATE_COMPLETE=fish tidegate | source` into ~/.config/fish/config.fish. TIDEGATE_ADDR and TIDEGATE_TOKEN name the server and
/// the caller.
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
