// trained_rank.hpp: one rank of a training test: a model of all types, and gradients that every rank can compute for all
// others.
#pragma once
#include <weft/train.h>

#include <string>
#include <vector>

namespace weft::internal::test {

// The parameters of the model: their types and odd counts. Every second one has memory of its own for its gradient.
std::vector<std::pair<weftDataType_t, size_t>> model_of_all_types();

// The i-th element of a rank's gradient: a small whole number.
double gradient_element(int rank, int iteration, int parameter, size_t i);
double number_at(const void* memory, weftDataType_t type, size_t i);
void set_number(void* memory, weftDataType_t type, size_t i, double number);

// Thread-bound, to a rank's thread.
class TrainedRank {
  public:
    TrainedRank(weftComm_t comm, const weftTrainDdpConfig_t& config,
                const std::vector<std::pair<weftDataType_t, size_t>>& model = model_of_all_types());
    TrainedRank(const TrainedRank&) = delete;
    ~TrainedRank() { (void)weftTrainDdpDestroy(ddp_); }

    weftTrainDdp_t ddp() const { return ddp_; }
    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    int parameters() const { return int(model_.size()); }
    // The first error of any call; empty: none.
    const std::string& wrong() const { return wrong_; }
    void check(weftResult_t result);

    // The values of parameters before creation were 100 * rank + parameter.
    double parameter_value(int parameter) const;
    // One element. Before creation it was 1000 + rank.
    double& buffer() { return buffer_; }
    // Writes the gradient of an iteration, or adds it.
    void compute(int parameter, int iteration, bool adds = false);
    void begin(weftTrainMode_t mode = weftTrainSynchronize) { check(weftTrainDdpBegin(ddp_, mode, nullptr)); }
    void ready(int parameter) { check(weftTrainDdpGradientReady(ddp_, parameter, nullptr)); }
    void finish() { check(weftTrainDdpFinish(ddp_, nullptr)); }
    // compute() and ready() of all parameters, in an order that differs between ranks and iterations.
    void backward(int iteration, bool adds = false);
    // Complains unless each element is `expected(parameter, i)` but for `roundings` to the type, and an error of `lossy`
    // times the largest number that was sent.
    template <class Expected>
    void expect(Expected&& expected, const char* when, double roundings = 2, double lossy = 0) {
        for (int p = 0; p < parameters(); ++p)
            for (size_t i = 0; i < model_[size_t(p)].second; ++i) compare(p, i, expected(p, i), when, roundings, lossy);
    }
    double gradient_at(int parameter, size_t i) const;
    // A test's own complaint.
    void complain(const std::string& text);

  private:
    void compare(int parameter, size_t i, double expected, const char* when, double roundings, double lossy);

    std::vector<std::pair<weftDataType_t, size_t>> model_;
    std::vector<std::vector<std::byte>> values_, gradients_;
    std::vector<std::string> names_;
    double buffer_ = 0;
    weftTrainDdp_t ddp_ = nullptr;
    int rank_ = 0, ranks_ = 0;
    std::string wrong_;
};

}  // namespace weft::internal::test
