r"""Wang, Lei, Ying & Zhang 2022, "Differentially Private SGD with Non-Smooth Losses" (arXiv 2101.08925).

**Setting.** $n$ records, a nonnegative loss $\ell(w; z)$ that is convex in $w$ and $\alpha$-Hoelder smooth on all of
$\mathbb{R}^d$,

$$\|\partial\ell(w, z) - \partial\ell(w', z)\| \le L\,\|w - w'\|^\alpha,\qquad \alpha \in [0, 1],$$

so that $\alpha = 0$ is a Lipschitz loss and $\alpha = 1$ a smooth one. $W$ is the ball of radius $R$ around $0$, where
the steps start; $M = \sup_z \|\partial\ell(0, z)\|$ and $M_0 = \sup_z \ell(0, z)$. On $W$ every subgradient is at most
$G = M + L R^\alpha$ long. All of these are constants known in advance; none may be computed from the private records.

**Loss constants**, for $\|x\| \le B$, $q \in [1, 2]$, $\alpha = q - 1$: the q-norm hinge $(1 - y\,w^\top x)_+^q$ has
$L = q B^q$, $M = q B$, $M_0 = 1$; the q-norm regression $|y - w^\top x|^q$ with $|y| \le Y$ has
$L = 2^{2-q} q B^q$, $M = q Y^{q-1} B$ ($B$ where $q = 1$), $M_0 = Y^q$. For $q = 1$ both losses are $B$-Lipschitz: give
that as `lipschitz`, since $M + L$ is two or three times as much.
"""
