"""README.txt of a signed or bundled run: what this is, and how to check it without this toolkit."""

from __future__ import annotations

from validation.model import RunInfo, VerdictDoc
from validation.model.base import NAMESPACES
from validation.run.rules_hashes import Rules
from validation.signing import MANIFEST, SIGNATURES
from validation.signing.statement import WORDS, one_line

README = "README.txt"

_TEXT = """\
{headline}
{words}
Rules: {rules}.

Run {run}, site {site}. Begin with report.pdf or report.html. Data: report.json, results.jsonl, verdict.json, raw/.

Check it, in this folder, with nothing but coreutils and OpenSSH 8.2 or newer. Silence of the first: nothing changed.
  sha256sum -c --quiet {manifest}
Each {signatures}/NN-NAME.txt says who signed what and when, NN-NAME-certificate.pdf is that as a page. For each:
  S={signatures}/NN-NAME.txt; N={namespace}
  sha256sum -c $S
  ssh-keygen -Y check-novalidate -n $N -s $S.sig < $S
That says which key signed. Whose key it is, its owner has to tell you (by another way than this file). Then:
  echo 'a@example.com ssh-ed25519 AAAA...' > ../allowed
  ssh-keygen -Y verify -f ../allowed -I a@example.com -n $N -s $S.sig < $S
The toolkit does all this, finds added files, and judges the run again: toolkit verify . --allowed-signers ../allowed
"""


def readme_text(info: RunInfo, verdict: VerdictDoc, rules: Rules) -> str:
    """The text for a run; the same run always gives the same."""
    return _TEXT.format(
        headline=one_line(verdict.line),
        words=WORDS[verdict.sign_off].replace("I sign this run as", "This run was judged as"),
        rules=one_line(rules.line()),
        run=one_line(info.run),
        site=one_line(info.site),
        manifest=MANIFEST,
        signatures=SIGNATURES,
        namespace=NAMESPACES[verdict.sign_off],
    )
