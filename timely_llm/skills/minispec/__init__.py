"""MiniSpec, the language of plans: checker, builder, grammar, interpreter."""
