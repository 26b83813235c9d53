// served_rank.hpp: a worker or a server of a parameter server in tests, with gradients in host memory or on a device.
#pragma once
#include "tests/train/local_ranks.hpp"

namespace weft::internal::test {

inline weftTrainServerConfig_t server_config(int servers = 1, double rate = 1) {
    weftTrainServerConfig_t config = WEFT_TRAIN_SERVER_CONFIG_INITIALIZER;
    config.servers = servers;
    config.learningRate = rate;
    return config;
}

// A rank with gradients of its own.
struct ServedRank : LocalRank {
    std::vector<std::vector<std::byte>> gradients;
    PlacedArrays sent;
    weftTrainServer_t server = nullptr;
    std::string wrong;

    template <class Value>
    ServedRank(std::vector<std::pair<weftDataType_t, size_t>> parameters, Value&& value)
        : LocalRank(std::move(parameters), value), gradients(model.size()) {
        for (size_t p = 0; p < model.size(); ++p) {
            gradients[p].resize(model[p].second * 8);
            tensors[p].gradient = gradients[p].data();
        }
    }
    // Registers memory of the rank's device.
    void place(int rank) {
        LocalRank::place(rank);
        sent = PlacedArrays(rank);
        for (size_t p = 0; p < model.size(); ++p) tensors[p].gradient = sent.place(gradients[p]);
    }
    ~ServedRank() { (void)weftTrainServerDestroy(server); }
    ServedRank(const ServedRank&) = delete;

    bool check(weftResult_t result) {
        if (result != weftSuccess && wrong.empty()) wrong = weftGetLastError(nullptr);
        return result == weftSuccess;
    }
    bool create(weftComm_t comm, const weftTrainServerConfig_t& config) {
        // A rank that ends its object while others still make theirs would end those, too.
        return check(weftTrainServerCreate(&server, comm, tensors.data(), tensors.size(), &config)) &&
               check(weftBarrier(comm, nullptr));
    }
    bool serve() {
        const bool fine = check(weftTrainServerServe(server));
        receive();
        return fine;
    }
    bool push() {
        sent.send();
        return check(weftTrainServerPush(server, sent.stream()));
    }
    bool pull() {
        const bool fine = check(weftTrainServerPull(server, placed.stream()));
        receive();
        return fine;
    }
    bool finish() { return check(weftTrainServerFinish(server)); }
    weftTrainServerStats_t stats() {
        weftTrainServerStats_t stats = WEFT_TRAIN_SERVER_STATS_INITIALIZER;
        check(weftTrainServerGetStats(server, &stats));
        return stats;
    }
    template <class Value>
    void set_gradients(Value&& value) {
        each([&](size_t p, size_t i) { set_number(gradients[p].data(), model[p].first, i, value(p, i)); });
    }
    int owner(size_t p) {
        int rank = -1;
        check(weftTrainServerGetOwner(server, int(p), &rank));
        return rank;
    }
    // Complains unless each element of the parameters on `rank` is `expected(p, i)`; -1: of all parameters.
    template <class Expected>
    void expect(Expected&& expected, int rank = -1) {
        each([&](size_t p, size_t i) {
            if (rank >= 0 && owner(p) != rank) return;
            if (at(p, i) != expected(p, i) && wrong.empty())
                wrong = "element " + std::to_string(i) + " of parameter " + std::to_string(p) + " is " +
                        std::to_string(at(p, i)) + ", not " + std::to_string(expected(p, i));
        });
    }
};

inline double first_value(int p, size_t i) { return double(int(i % 7) - 3) + p; }
// -1, 0 or 1: sums of them are exact in every type.
inline double push_of(int rank, int step, size_t p, size_t i) {
    return double((uint64_t(rank) * 5 + uint64_t(step) * 7 + p * 3 + i * 11) % 3) - 1;
}

}  // namespace weft::internal::test
