"""A reader of the LaTeX that algorithms carry: enough of it to see that GitHub's renderer will take it."""

from __future__ import annotations

import re

#: Commands that our formulas use and that GitHub's renderer takes. A new one is added once it has been looked up:
#: GitHub refuses \operatorname, and has no \argmin.
_KNOWN = """
alpha approx arg asymp bar begin beta bf Big big Bigg bigg Bigl bigl Bigr bigr binom bmod cap cdot cdots chi
circ colon cup Delta delta dfrac displaystyle ell emptyset end epsilon equiv eta exists exp forall frac Gamma
gamma ge geq gg hat in inf infty int kappa Lambda lambda langle lceil ldots le left leftarrow leq lfloor limits
ll ln log lVert lvert mathbb mathbf mathcal mathop mathrm max mid min mp mu nabla ne neq ni not notin nu odot Omega
omega oplus overline partial Phi phi Pi pi pm prod propto Psi psi qquad quad rangle rceil rfloor rho right
rightarrow rVert rvert Sigma sigma sim sqrt square star subset subseteq sum sup tag tanh tau text textstyle tfrac Theta
theta tilde times to top underbrace varepsilon varphi vec Vert vert wedge widehat widetilde xi zeta
"""
COMMANDS = frozenset(_KNOWN.split())
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
#: After a backslash, no letters: spaces, braces, norms, line breaks.
_SYMBOLS = frozenset("|,;:!{}\\ %_&#$")


def faults(formula: str) -> list[str]:
    """What is wrong with a formula, in words; nothing for one that renders.

    >>> faults(r"\\frac{1}{2} \\left(x\\right)")
    []
    >>> faults(r"\\frac{1}{2")
    ['braces do not match']
    >>> faults(r"\\left(x) \\blob")
    ['\\\\left and \\\\right do not match', 'unknown command \\\\blob']
    """
    found = []
    if not _balanced(formula):
        found.append("braces do not match")
    # \left is also the beginning of \leftarrow.
    if len(re.findall(r"\\left(?![a-z])", formula)) != len(re.findall(r"\\right(?![a-z])", formula)):
        found.append("\\left and \\right do not match")
    if sorted(re.findall(r"\\begin\{(\w+)\}", formula)) != sorted(re.findall(r"\\end\{(\w+)\}", formula)):
        found.append("\\begin and \\end do not match")
    if re.search(r"(?<!\\)\$", formula):
        found.append("a dollar inside a formula")
    for command in _COMMAND.findall(formula):
        known = command in COMMANDS if command.isalpha() else command in _SYMBOLS
        if not known:
            found.append(f"unknown command \\{command}")
    if not formula.strip():
        found.append("nothing there")
    return found


def page_faults(text: str) -> list[str]:
    """What is wrong with the formulas of a Markdown text.

    GitHub takes blocks of the kind ``math``, and within text dollars with backticks, as they are; and between bare
    dollars, single ones without blanks at the inner ends, what its escapes leave.
    """
    found: list[str] = []
    formulas = re.findall(r"```math\n(.*?)\n```", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|^    .*$", "", text, flags=re.DOTALL | re.MULTILINE)
    formulas += re.findall(r"\$`([^`]*)`\$", text)
    text = re.sub(r"\$`[^`]*`\$|`[^`\n]*`", "", text)
    displays = re.split(r"(?<!\\)\$\$", text)
    if len(displays) % 2 == 0:
        return ["an odd number of $$"]
    formulas += displays[1::2]
    for paragraph in re.split(r"\n\s*\n", "\n\n".join(displays[::2])):
        inlines = re.split(r"(?<!\\)\$", paragraph)
        if len(inlines) % 2 == 0:
            found.append(f"an odd number of $ in {paragraph.strip()[:60]}")
            continue
        for inline in inlines[1::2]:
            if inline != inline.strip():
                found.append(f"a blank at the end of the formula {inline!r}")
            if re.search(r"\\[^A-Za-z]", inline):
                found.append(f"Markdown reads the escape in {inline!r}: use $`...`$")
            formulas.append(inline)
    return found + [f"{fault} in {formula.strip()[:60]}" for formula in formulas for fault in faults(formula)]


def _balanced(formula: str) -> bool:
    depth = 0
    for token in re.findall(r"\\.|[{}]", formula, flags=re.DOTALL):
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth < 0:
            return False
    return depth == 0
