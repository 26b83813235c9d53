// test_fabrics.hpp: fabrics for tests of the simulator: a link for each pair of ranks, of chosen or random speed.
#pragma once
#include <fmt/core.h>

#include <functional>
#include <random>

#include "src/simulator/fabric.hpp"

namespace weft::internal {

// Speeds and latencies may repeat from `period` ranks to the next: then the fabric says that it can be turned.
class PairsFabric : public Fabric {
  public:
    PairsFabric(int ranks, double bytes_per_us, double latency_us)
        : ranks_(ranks), period_(1), speeds_(size_t(ranks), bytes_per_us), latencies_(size_t(ranks), latency_us) {}
    static PairsFabric random(int ranks, int period, unsigned seed) {
        PairsFabric made(ranks, 0, 0);
        made.period_ = period;
        made.speeds_.clear();
        made.latencies_.clear();
        std::mt19937 engine(seed);
        for (int pair = 0; pair < period * ranks; ++pair) {
            made.speeds_.push_back(100 + double(engine() % 10'000));
            made.latencies_.push_back(double(engine() % 100) / 10);
        }
        return made;
    }

    RankCosts own;
    bool shared = false;  // all messages over one link besides, of the speed of the first
    bool turns = true;

    void scale(double factor) {
        for (double& speed : speeds_) speed *= factor;
    }
    void no_latency() { latencies_.assign(latencies_.size(), 0); }
    void quicken(int from, int to, double factor) { speeds_[place(from, to)] *= factor; }

    int ranks() const override { return ranks_; }
    const RankCosts& costs() const override { return own; }
    int links() const override { return ranks_ * ranks_ + 1; }
    double bytes_per_us(int link) const override {
        return link == ranks_ * ranks_ ? speeds_[0] : speeds_[place(link / ranks_, link % ranks_)];
    }
    std::string link_name(int link) const override { return fmt::format("{} to {}", link / ranks_, link % ranks_); }
    Route route(int from, int to) const override {
        const double latency_us = latencies_[place(from, to)];
        Route route{.links = {from * ranks_ + to}, .latency_us = latency_us, .credit_us = latency_us};
        if (shared) route.links.push_back(ranks_ * ranks_);
        return route;
    }
    Route local(int) const override { return {}; }
    int rotation() const override { return turns ? period_ : ranks_; }
    Turned turned(int link) const override {
        if (link == ranks_ * ranks_) return {link, ranks_ / period_};
        const int from = link / ranks_, to = link % ranks_, back = from - from % period_;
        return {(from - back) * ranks_ + (to - back + ranks_) % ranks_, 1};
    }

  private:
    size_t place(int from, int to) const {
        return size_t(from % period_) * size_t(ranks_) + size_t((to - from + ranks_) % ranks_);
    }
    int ranks_, period_;
    std::vector<double> speeds_, latencies_;  // by the place of the sender in its period, and the distance
};

}  // namespace weft::internal
