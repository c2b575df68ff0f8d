"""From lowered programs to texts: expressions, kernels, headers, bindings, build.json and the outline of `kernwright explain`."""
