// rdma_figures.hpp: the figures that `weft rdma-check` measures, of one run and over all runs.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace weft::internal::tools {

// A run may lack a figure: perftest may be missing or fail. Thread-bound.
class RdmaFigures {
  public:
    void begin_run();
    void add(const std::string& name, double value);
    // Of this run alone: " name value, name value".
    std::string run_text() const;
    // 0: no run has the figure.
    double median_of(const std::string& name) const;
    size_t runs_with(const std::string& name) const;
    // ", 2 of 3 runs" if some runs lack the figure, else empty.
    std::string lack_text(const std::string& name) const;

  private:
    int runs_ = 0;
    std::map<std::string, double> run_;
    std::map<std::string, std::vector<double>> all_;
};

}  // namespace weft::internal::tools
