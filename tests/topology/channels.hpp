// channels.hpp: checks that every search result must pass, and random machines to search.
#pragma once
#include <random>

#include "topology/search/search.hpp"

namespace weft::internal::test {

// Rings pass each site once over existing links. No link is overloaded. The bound is at least the result. Orders and
// trees contain each rank once.
void check_channels_are_valid(const topology::Channels& channels);

// A host of `gpus` GPUs on one or two cpus, some joined by NVLinks of 20 GB/s, with NICs.
topology::Graph random_machine(std::mt19937& random, int gpus, bool with_ports);

// A GPU below the cpu, added to the graph.
int add_gpu(topology::Graph& graph, int parent, int dev, const char* link_speed = "16.0 GT/s PCIe");
int add_cpu(topology::Graph& graph, int numaid);
int add_port(topology::Graph& graph, int parent, int dev, int speed);
void add_nvlinks(topology::Graph& graph, int one, int other, int count);

}  // namespace weft::internal::test
