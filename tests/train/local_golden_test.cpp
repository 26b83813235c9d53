// Local SGD and DiLoCo against a plain reference in one thread, checkpoints, and ranks that give up. In host memory or on
// devices, as the program has it.
#include <algorithm>
#include <array>
#include <cstring>
#include <latch>

#include "tests/error.hpp"
#include "tests/train/local_ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

weftTrainLocalConfig_t average_config(uint64_t period, uint64_t warmup = 0) {
    weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
    config.period = period;
    config.warmup = warmup;
    return config;
}

weftTrainLocalConfig_t diloco_config(uint64_t period, int fragments = 1, uint64_t delay = 0, double mix = 0) {
    weftTrainLocalConfig_t config = average_config(period);
    config.method = weftTrainDiloco;
    config.fragments = fragments;
    config.delay = delay;
    config.mix = mix;
    return config;
}

// The inner optimizer's change of an element: exact in every type, and different on each rank.
double change(int rank, int step, size_t p, size_t i) { return (gradient_element(rank, step, int(p), i)) / 16; }

// One thread computes all ranks, in double precision, rounded to the types as the library does it.
class Reference {
  public:
    Reference(int ranks, const weftTrainLocalConfig_t& config, const LocalRank& first, std::vector<int> fragment_of)
        : config_(config), fragment_of_(std::move(fragment_of)) {
        for (int rank = 0; rank < ranks; ++rank) ranks_.push_back(first);
        for (const auto& [type, count] : first.model) anchor_.emplace_back(count);
        momentum_ = reduced_ = anchor_;
        first.each([&](size_t p, size_t i) { anchor_[p][i] = first.at(p, i); });
    }

    void step(int number) {
        for (int rank = 0; rank < int(ranks_.size()); ++rank)
            first().each([&](size_t p, size_t i) {
                LocalRank& own = ranks_[size_t(rank)];
                own.set(p, i, own.at(p, i) + change(rank, number, p, i));
            });
        if (config_.method == weftTrainAverage) {
            const int since = number - int(config_.warmup);
            if (since >= 0 && since % int(config_.period) == 0)
                first().each([&](size_t p, size_t i) {
                    const double mean = sum(p, i, 0) / double(ranks_.size());
                    for (LocalRank& rank : ranks_) rank.set(p, i, mean);
                });
            return;
        }
        const int apart = int(config_.period) / config_.fragments, steps = number + 1;
        if (steps % apart == 0) launch(steps / apart - 1);
        if (steps > int(config_.delay) && (steps - int(config_.delay)) % apart == 0) apply();
    }
    double at(int rank, size_t p, size_t i) const { return ranks_[size_t(rank)].at(p, i); }

  private:
    const LocalRank& first() const { return ranks_.front(); }
    double sum(size_t p, size_t i, double from) {
        double total = 0;
        for (const LocalRank& rank : ranks_) total += from == 0 ? rank.at(p, i) : from - rank.at(p, i);
        return total;
    }
    double round(size_t p, double number) const {
        return first().model[p].first == weftFloat64 ? number : float(number);
    }
    void launch(int index) {
        open_ = index % config_.fragments;
        first().each([&](size_t p, size_t i) {
            if (fragment_of_[p] != open_) return;
            double total = 0;
            for (const LocalRank& rank : ranks_) total += round(p, anchor_[p][i] - rank.at(p, i));
            reduced_[p][i] = round(p, total / double(ranks_.size()));
        });
    }
    void apply() {
        first().each([&](size_t p, size_t i) {
            if (fragment_of_[p] != open_) return;
            momentum_[p][i] = round(p, config_.momentum * momentum_[p][i] + reduced_[p][i]);
            anchor_[p][i] =
                round(p, anchor_[p][i] - config_.learningRate * (reduced_[p][i] + config_.momentum * momentum_[p][i]));
            for (LocalRank& rank : ranks_)
                rank.set(p, i, anchor_[p][i] + config_.mix * (rank.at(p, i) - anchor_[p][i]));
        });
    }

    weftTrainLocalConfig_t config_;
    std::vector<int> fragment_of_;
    std::vector<LocalRank> ranks_;
    std::vector<std::vector<double>> anchor_, momentum_, reduced_;  // of each parameter
    int open_ = -1;
};

LocalRank first_values(int rank) {
    return {model_of_all_types(), [&](int p, size_t i) { return double(int(i % 17) - 8) / 4 + p + rank * 1000; }};
}

// Compares all ranks with the reference after each step. The errors, by rank.
std::vector<std::string> against_reference(int ranks, const weftTrainLocalConfig_t& config, int steps,
                                           const std::vector<int>& fragment_of) {
    return in_program_memory(ranks, [&](weftComm_t comm, int rank) -> std::string {
        LocalRank own = first_values(rank);
        if (program_has_devices) own.place(rank);
        Reference reference(ranks, config, first_values(0), fragment_of);
        weftTrainLocal_t local = nullptr;
        if (weftTrainLocalCreate(&local, comm, own.tensors.data(), own.tensors.size(), &config) != weftSuccess)
            return weftGetLastError(nullptr);
        own.receive();
        std::string wrong;
        for (int step = 0; step < steps && wrong.empty(); ++step) {
            own.each([&](size_t p, size_t i) { own.set(p, i, own.at(p, i) + change(rank, step, p, i)); });
            reference.step(step);
            if (own.step(local) != weftSuccess) wrong = weftGetLastError(nullptr);
            own.each([&](size_t p, size_t i) {
                const double expected = reference.at(rank, p, i), seen = own.at(p, i);
                if (std::fabs(seen - expected) > (step + 1) * tolerance(own.model[p].first, expected) && wrong.empty())
                    wrong = "step " + std::to_string(step) + ", parameter " + std::to_string(p) + ", element " +
                            std::to_string(i) + ": " + std::to_string(seen) + ", not " + std::to_string(expected);
            });
        }
        if (weftTrainLocalDestroy(local) != weftSuccess) wrong = weftGetLastError(nullptr);
        return wrong;
    });
}

}  // namespace

TEST_CASE("Local SGD averages parameters of all types at the steps of its rule") {
    const std::vector<int> one_fragment(model_of_all_types().size(), 0);
    for (const int ranks : {1, 2, 3, 4}) {
        if (is_left_out(ranks)) continue;
        const auto [period, warmup] =
            std::array<std::pair<int, int>, 4>{{{1, 0}, {2, 0}, {3, 2}, {4, 3}}}[size_t(ranks - 1)];
        INFO(ranks);
        CHECK(against_reference(ranks, average_config(uint64_t(period), uint64_t(warmup)), 9, one_fragment) ==
              no_error(ranks));
    }
}

TEST_CASE("DiLoCo's outer step agrees with the reference, with fragments, delays and mixes") {
    std::vector<int> fragments[] = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 0, 1, 2, 0, 1, 2, 0}};
    for (const int ranks : {1, 2, 3, 4}) {
        if (is_left_out(ranks)) continue;
        INFO(ranks);
        CHECK(against_reference(ranks, diloco_config(2), 5, fragments[0]) == no_error(ranks));
        weftTrainLocalConfig_t streaming = diloco_config(6, 3, 1, 0.25);
        streaming.fragmentOf = fragments[1].data();
        CHECK(against_reference(ranks, streaming, 13, fragments[1]) == no_error(ranks));
    }
}

TEST_CASE("the outer step is torch's Nesterov SGD") {
    const auto wrong = in_program_memory(2, [](weftComm_t comm, int rank) -> std::string {
        LocalRank own({{weftFloat64, 1}}, [](int, size_t) { return 1.0; });
        if (program_has_devices) own.place(rank);
        const weftTrainLocalConfig_t config = diloco_config(1);
        weftTrainLocal_t local = nullptr;
        if (weftTrainLocalCreate(&local, comm, own.tensors.data(), 1, &config)) return weftGetLastError(nullptr);
        own.receive();
        // Mean gradients 0.5, then -0.25. torch.optim.SGD(lr=0.7, momentum=0.9, nesterov=True) gives these numbers.
        const double golden[] = {1 - 0.7 * 0.95, 1 - 0.7 * 0.95 - 0.7 * (-0.25 + 0.9 * 0.2)};
        const double changes[2][2] = {{-1, 0}, {0.75, -0.25}};
        for (int step = 0; step < 2; ++step) {
            own.set(0, 0, own.at(0, 0) + changes[step][rank]);
            int changed = 0;
            if (own.step(local, &changed) || changed != 1) return weftGetLastError(nullptr);
            if (std::fabs(own.at(0, 0) - golden[step]) > 1e-12) return std::to_string(own.at(0, 0));
        }
        (void)weftTrainLocalDestroy(local);
        return "";
    });
    CHECK(wrong == no_error(2));
}

TEST_CASE("gradients are averaged before the warm-up ends, and local afterwards") {
    const auto wrong = in_program_memory(2, [](weftComm_t comm, int rank) -> std::string {
        LocalRank own({{weftFloat32, 3}}, [](int, size_t) { return 1.0; });
        if (program_has_devices) own.place(rank);
        const weftTrainLocalConfig_t config = average_config(2, 2);
        weftTrainLocal_t local = nullptr;
        if (weftTrainLocalCreate(&local, comm, own.tensors.data(), 1, &config)) return weftGetLastError(nullptr);
        own.receive();
        std::string seen;
        for (int step = 0; step < 6; ++step) {
            weftTrainMode_t mode = weftTrainSynchronize;
            int changed = -1;
            if (weftTrainLocalGetMode(local, &mode) || own.step(local, &changed)) return weftGetLastError(nullptr);
            seen += std::string(mode == weftTrainSynchronize ? "S" : "A") + std::to_string(changed);
        }
        (void)weftTrainLocalDestroy(local);
        return seen == "S0S0A1A0A1A0" ? "" : seen;
    });
    CHECK(wrong == no_error(2));
}

TEST_CASE("training goes on from a checkpoint as if it had not ended, also with a reduction in progress") {
    constexpr int ranks = 2, saved_at = 7, last = 14;
    const weftTrainLocalConfig_t config = diloco_config(6, 2, 2, 0.5);
    const auto wrong = in_program_memory(ranks, [&](weftComm_t comm, int rank) -> std::string {
        struct Saved {
            std::vector<std::byte> anchor, momentum, reduced;
        };
        std::vector<Saved> saved;
        std::vector<std::vector<std::byte>> saved_values;
        uint64_t steps = 0;
        std::vector<std::vector<std::byte>> results[2];
        for (const bool restores : {false, true}) {
            LocalRank own = first_values(0);
            if (program_has_devices) own.place(rank);
            weftTrainLocal_t local = nullptr;
            if (weftTrainLocalCreate(&local, comm, own.tensors.data(), own.tensors.size(), &config))
                return weftGetLastError(nullptr);
            own.receive();
            if (restores && weftTrainLocalRestore(local, steps)) return weftGetLastError(nullptr);
            for (int step = restores ? saved_at : 0; step <= last; ++step) {
                for (size_t p = 0; step == saved_at && p < own.model.size(); ++p) {
                    weftTrainLocalState_t state = WEFT_TRAIN_LOCAL_STATE_INITIALIZER;
                    if (weftTrainLocalGetState(local, int(p), &state)) return weftGetLastError(nullptr);
                    const size_t bytes = state.count * (state.datatype == weftFloat64 ? 8 : 4);
                    const auto copied = [&](void* from) {
                        std::vector<std::byte> read(from ? bytes : 0);
                        if (!read.empty()) own.placed.copy(read.data(), from, read.size());
                        return read;
                    };
                    if (!restores) {
                        saved.push_back({copied(state.anchor), copied(state.momentum), copied(state.reduced)});
                        saved_values.push_back(own.values[p]);
                        continue;
                    }
                    const auto put = [&](const std::vector<std::byte>& from, void* to) {
                        if (!from.empty()) own.placed.copy(to, from.data(), from.size());
                    };
                    if ((state.reduced == nullptr) != saved[p].reduced.empty() && bytes > 0) return "another fragment";
                    put(saved[p].anchor, state.anchor);
                    put(saved[p].momentum, state.momentum);
                    put(saved[p].reduced, state.reduced);
                    own.values[p] = saved_values[p];
                }
                if (step == saved_at && weftTrainLocalGetSteps(local, &steps)) return weftGetLastError(nullptr);
                own.each([&](size_t p, size_t i) { own.set(p, i, own.at(p, i) + change(rank, step, p, i)); });
                if (own.step(local)) return weftGetLastError(nullptr);
            }
            results[restores] = own.values;
            if (weftTrainLocalDestroy(local)) return weftGetLastError(nullptr);
        }
        if (steps != saved_at) return "another number of steps";
        const bool open =
            std::any_of(saved.begin(), saved.end(), [](const Saved& each) { return !each.reduced.empty(); });
        if (!open) return "no reduction was in progress";
        return results[0] == results[1] ? "" : "other values";
    });
    CHECK(wrong == no_error(ranks));
}

TEST_CASE("Local SGD and DiLoCo reach the minimum of a quadratic whose ranks have different minima") {
    weftTrainLocalConfig_t configs[] = {average_config(5), diloco_config(4, 2, 1)};
    configs[1].momentum = 0.5;
    for (const weftTrainLocalConfig_t& config : configs) {
        const auto wrong = in_program_memory(3, [&](weftComm_t comm, int rank) -> std::string {
            LocalRank own({{weftFloat32, 5}, {weftFloat64, 4}}, [](int, size_t) { return 7.0; });
            if (program_has_devices) own.place(rank);
            weftTrainLocal_t local = nullptr;
            if (weftTrainLocalCreate(&local, comm, own.tensors.data(), 2, &config)) return weftGetLastError(nullptr);
            own.receive();
            for (int step = 0; step < 200; ++step) {
                own.each([&](size_t p, size_t i) { own.set(p, i, own.at(p, i) - 0.1 * (own.at(p, i) - rank)); });
                if (own.step(local)) return weftGetLastError(nullptr);
            }
            std::string text;
            own.each([&](size_t p, size_t i) {
                weftTrainLocalState_t state = WEFT_TRAIN_LOCAL_STATE_INITIALIZER;
                if (weftTrainLocalGetState(local, int(p), &state)) text = weftGetLastError(nullptr);
                double anchor[8];
                if (state.anchor) own.placed.copy(anchor, state.anchor, state.count * size_of(state.datatype));
                const double value = state.anchor ? number_at(anchor, state.datatype, i) : own.at(p, i);
                // Between two averages a rank steps towards its own minimum.
                if (std::fabs(value - 1) > (state.anchor ? 0.01 : 0.5)) text = std::to_string(value);
            });
            (void)weftTrainLocalDestroy(local);
            return text;
        });
        CHECK(wrong == no_error(3));
    }
}

TEST_CASE("a number that is not finite is dropped on all ranks, with the rank and parameter that has it") {
    for (const weftTrainLocalConfig_t& config : {average_config(1), diloco_config(1)}) {
        const auto wrong = in_program_memory(3, [&](weftComm_t comm, int rank) -> std::string {
            LocalRank own({{weftFloat32, 3}, {weftFloat16, 2}}, [](int, size_t) { return 1.0; });
            if (program_has_devices) own.place(rank);
            weftTrainLocal_t local = nullptr;
            if (weftTrainLocalCreate(&local, comm, own.tensors.data(), 2, &config)) return weftGetLastError(nullptr);
            own.receive();
            own.set(1, 1, rank == 2 ? NAN : 5);
            if (own.step(local) != weftInvalidUsage) return "no error";
            if (last_error().id != std::string("train.local-values") || last_error().failedRank != 2)
                return weftGetLastError(nullptr);
            if (std::string(weftGetLastError(nullptr)).find("\"layer1\"") == std::string::npos) return "no name";
            if (rank != 2 && own.at(1, 1) != 5) return "the values were lost";
            own.set(1, 1, 1);
            if (own.step(local)) return weftGetLastError(nullptr);
            (void)weftTrainLocalDestroy(local);
            return own.at(1, 1) == 1 ? "" : std::to_string(own.at(1, 1));
        });
        CHECK(wrong == no_error(3));
    }
}

TEST_CASE("ranks that restore different steps, and ranks that give up, are errors on the others") {
    std::latch rank_0_ended_step(1);
    const auto wrong = in_program_memory(2, [&](weftComm_t comm, int rank) -> std::string {
        LocalRank own({{weftFloat32, 3}}, [](int, size_t) { return 1.0; });
        if (program_has_devices) own.place(rank);
        const weftTrainLocalConfig_t config = diloco_config(1);
        weftTrainLocal_t local = nullptr;
        if (weftTrainLocalCreate(&local, comm, own.tensors.data(), 1, &config)) return weftGetLastError(nullptr);
        own.receive();
        if (weftTrainLocalRestore(local, rank ? 3 : 2) != weftMismatch) return "no mismatch";
        if (last_error().id != std::string("train.local-restore") || last_error().failedRank != 1)
            return weftGetLastError(nullptr);
        const weftResult_t stepped = own.step(local);
        if (rank == 0) rank_0_ended_step.count_down();
        if (stepped) return weftGetLastError(nullptr);
        if (rank == 1) {
            // An abort would end the other rank's step, too, if that is still in progress.
            rank_0_ended_step.wait();
            if (weftTrainLocalAbort(local)) return weftGetLastError(nullptr);
            if (own.step(local) == weftSuccess) return "no error here";
            if (last_error().id != std::string("train.aborted")) return weftGetLastError(nullptr);
        } else {
            if (own.step(local) != weftRemoteError) return "no error of the other rank";
            if (own.step(local) != weftRemoteError) return "it has not ended";
        }
        if (weftTrainLocalDestroy(local)) return weftGetLastError(nullptr);
        return own.step(local) == weftInvalidArgument ? "" : "a destroyed object";
    });
    CHECK(wrong == no_error(2));
}
