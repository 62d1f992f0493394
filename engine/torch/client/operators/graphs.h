// Whole graphs, which torch.compile makes: run operator by operator the first time, taken down the second time, then one message a run.
#pragma once

#include <torch/library.h>

#include <atomic>

namespace eat {

// elastic_ai::graph_*, for python/elastic_ai_torch/graphs.py.
void define_graphs(torch::Library& library);

extern std::atomic<int64_t> graph_runs;

}  // namespace eat
