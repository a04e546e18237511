r"""Wang, Lei, Ying & Zhang 2022, "Differentially Private SGD with Non-Smooth Losses" (arXiv 2101.08925).

**Setting.** There are $n$ records. The loss $\ell(w; z)$ is nonnegative, convex in $w$ and $\alpha$-Hoelder smooth on
all of $\mathbb{R}^d$:

$$\|\partial\ell(w, z) - \partial\ell(w', z)\| \le L\,\|w - w'\|^\alpha,\qquad \alpha \in [0, 1].$$

So a loss with $\alpha = 0$ is Lipschitz and a loss with $\alpha = 1$ is smooth. $W$ is the ball of radius $R$ around
$0$, and the steps start at $0$. Let $M = \sup_z \|\partial\ell(0, z)\|$ and $M_0 = \sup_z \ell(0, z)$. On $W$ every
subgradient is at most $G = M + L R^\alpha$ long. All of these constants must be known in advance and must not be
computed from the private records.

**Loss constants**, for $\|x\| \le B$, $q \in [1, 2]$, $\alpha = q - 1$: the q-norm hinge $(1 - y\,w^\top x)_+^q$ has $L
= q B^q$, $M = q B$, $M_0 = 1$; the q-norm regression $|y - w^\top x|^q$ with $|y| \le Y$ has $L = 2^{2-q} q B^q$, $M =
q Y^{q-1} B$ ($B$ where $q = 1$), $M_0 = Y^q$. For $q = 1$ both losses are $B$-Lipschitz. In this case give $B$ as
`lipschitz`, because $M + L$ is two or three times as large.
"""
