// Optimizers whose states lie in a file: the bits of those in memory, their states, failures of the disk, and wrong use.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <weft/train.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "tests/amount.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"

using namespace weft::internal::test;

namespace {

constexpr size_t part_counts[] = {0, 1, 17, 1024, 2500, 5001, 3, 1024};

// A folder that ends with its owner, in memory, which is faster, or on the disk of temporary files.
struct Folder {
    std::string path;
    explicit Folder(bool on_disk = false) {
        const std::filesystem::path memory = "/dev/shm", disk = std::filesystem::temp_directory_path();
        path = (!on_disk && std::filesystem::exists(memory) ? memory : disk) / "weft-offload-XXXXXX";
        if (!mkdtemp(path.data())) throw std::runtime_error("no folder " + path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
};

// Random parts, and an optimizer of them. Two of one seed are equal.
class Parts {
  public:
    // On more than one rank parts with odd numbers are sharded.
    explicit Parts(uint32_t seed, int ranks = 1, int rank = 0) : random_(seed) {
        for (size_t p = 0; p < std::size(part_counts); ++p) {
            const size_t whole = part_counts[p], begin = p % 2 ? whole * size_t(rank) / size_t(ranks) : 0;
            const size_t end = p % 2 ? whole * size_t(rank + 1) / size_t(ranks) : whole;
            std::vector<float> values;
            for (size_t i = 0; i < whole; ++i) {
                const float value = number();
                if (i >= begin && i < end) values.push_back(value);
            }
            values_.push_back(std::move(values));
            copies_.emplace_back(end - begin, uint16_t(0));
            gradients_.emplace_back(end - begin, 0.0f);
        }
    }
    ~Parts() { (void)weftTrainOptimizerDestroy(optimizer_); }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;

    weftResult_t make(const weftTrainOptimizerConfig_t& config, weftComm_t comm = nullptr) {
        std::vector<weftTrainPart_t> parts;
        for (size_t p = 0; p < values_.size(); ++p) {
            weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
            part.name = "some";
            part.values = values_[p].data();
            part.copy = copies_[p].data();
            part.copyType = p % 3 ? weftBfloat16 : weftFloat16;
            part.gradient = gradients_[p].data();
            part.gradientType = p % 4 == 3 ? weftBfloat16 : weftFloat32;
            part.count = values_[p].size();
            part.axes = comm ? p % 2 : 0;
            parts.push_back(part);
        }
        const weftResult_t made =
            weftTrainOptimizerCreate(&optimizer_, parts.data(), parts.size(), &comm, comm ? 1 : 0, &config);
        // Offloaded values are not read any more.
        if (config.offloadFolder && config.offloadValues)
            for (auto& values : values_) values.assign(values.size(), NAN);
        offloads_values_ = config.offloadFolder && config.offloadValues;
        return made;
    }

    weftResult_t step(int number) {
        for (size_t p = 0; p < gradients_.size(); ++p) {
            // Also where they are read as bfloat16, two to a number.
            for (float& gradient : gradients_[p]) gradient = twice(this->number());
            // Some steps lack some gradients.
            void* const gradient = (size_t(number) + p) % 5 == 4 ? nullptr : gradients_[p].data();
            if (const auto set = weftTrainOptimizerSetGradient(optimizer_, int(p), gradient)) return set;
        }
        if (const auto skipped = weftTrainOptimizerStep(optimizer_, 0.1, 1, 1, nullptr)) return skipped;
        return weftTrainOptimizerStep(optimizer_, 0.05 / (number + 1), number % 2 ? 0.25 : 1, 0, nullptr);
    }

    // The first difference to another one of the same seed that keeps all in memory.
    std::string differs(const Parts& memory) const {
        int states = 0;
        if (weftTrainOptimizerGetStateCount(optimizer_, &states) != weftSuccess) return newest_id();
        for (size_t p = 0; p < values_.size(); ++p) {
            const size_t count = values_[p].size();
            if (!same(copies_[p].data(), memory.copies_[p].data(), count)) return fmt::format("copy of {}", p);
            if (!offloads_values_ && !same(values_[p].data(), memory.values_[p].data(), count))
                return fmt::format("values of {}", p);
            for (int s = 0; s < states; ++s) {
                std::vector<float> own(count + 1);
                const char* name = nullptr;
                if (weftTrainOptimizerReadState(optimizer_, int(p), s, own.data()) != weftSuccess ||
                    weftTrainOptimizerGetState(optimizer_, int(p), s, &name, nullptr) != weftSuccess)
                    return newest_id();
                const float* expected = memory.values_[p].data();
                float* state = nullptr;
                if (name != std::string("values")) {
                    const char* other = nullptr;
                    if (weftTrainOptimizerGetState(memory.optimizer_, int(p), s, &other, &state) != weftSuccess)
                        return newest_id();
                    if (name != std::string(other)) return name;
                    expected = state;
                }
                if (!same(own.data(), expected, count)) return fmt::format("{} of {}", name, p);
            }
        }
        return "";
    }
    // Copies states and steps by way of memory, as checkpoints do.
    std::string restore(const Parts& from) {
        int states = 0;
        if (weftTrainOptimizerGetStateCount(from.optimizer_, &states) != weftSuccess) return newest_id();
        for (size_t p = 0; p < values_.size(); ++p) {
            uint64_t steps = 0;
            if (weftTrainOptimizerGetSteps(from.optimizer_, int(p), &steps) != weftSuccess ||
                weftTrainOptimizerSetSteps(optimizer_, int(p), steps) != weftSuccess)
                return newest_id();
            std::vector<float> state(values_[p].size() + 1);
            for (int s = 0; s < states; ++s)
                if (weftTrainOptimizerReadState(from.optimizer_, int(p), s, state.data()) != weftSuccess ||
                    weftTrainOptimizerWriteState(optimizer_, int(p), s, state.data()) != weftSuccess)
                    return newest_id();
            if (!offloads_values_) values_[p] = from.values_[p];
            copies_[p] = from.copies_[p];
        }
        random_ = from.random_;
        return "";
    }
    weftTrainOptimizer_t get() const { return optimizer_; }

  private:
    float number() { return float(std::ldexp(double(random_()), -31) - 1); }
    // Its upper half, in both halves.
    static float twice(float value) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits = (bits & 0xffff0000u) | bits >> 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    template <class Element>
    static bool same(const Element* left, const Element* right, size_t count) {
        return count == 0 || memcmp(left, right, count * sizeof(Element)) == 0;
    }

    std::mt19937 random_;
    std::vector<std::vector<float>> values_, gradients_;
    std::vector<std::vector<uint16_t>> copies_;
    weftTrainOptimizer_t optimizer_ = nullptr;
    bool offloads_values_ = false;
};

weftTrainOptimizerConfig_t config_of(weftTrainAlgorithm_t algorithm) {
    weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    config.algorithm = algorithm;
    config.weightDecay = 0.1;
    config.momentum = 0.9;
    return config;
}

// Whether the kernel and the host have io_uring.
bool has_ring(const Folder& folder) {
    Parts parts(1);
    auto config = config_of(weftTrainAdam);
    config.offloadFolder = folder.path.c_str();
    config.offloadEngine = weftTrainOffloadUring;
    const bool made = parts.make(config) == weftSuccess;
    if (!made) WARN("io_uring is not tested: " << weftGetLastError(nullptr));
    return made;
}

std::vector<weftTrainOffloadEngine_t> engines(const Folder& folder) {
    if (has_ring(folder)) return {weftTrainOffloadThreads, weftTrainOffloadUring};
    return {weftTrainOffloadThreads};
}

std::string trains(weftTrainOptimizerConfig_t config, const Folder& folder, weftComm_t comm, int ranks, int rank) {
    Parts memory(seed(), ranks, rank), disk(seed(), ranks, rank);
    auto in_memory = config;
    in_memory.offloadFolder = nullptr;
    config.offloadFolder = folder.path.c_str();
    if (memory.make(in_memory, comm) != weftSuccess || disk.make(config, comm) != weftSuccess)
        return weftGetLastError(nullptr);
    for (int step = 0; step < 4; ++step) {
        if (memory.step(step) != weftSuccess || disk.step(step) != weftSuccess) return weftGetLastError(nullptr);
        if (const std::string differs = disk.differs(memory); !differs.empty())
            return fmt::format("step {}: {}", step, differs);
    }
    return "";
}

// The limit of file sizes, until the end of a block.
struct FileSizeLimit {
    rlimit before{};
    FileSizeLimit(const FileSizeLimit&) = delete;
    explicit FileSizeLimit(uint64_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before);
        rlimit limit = before;
        limit.rlim_cur = bytes;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before); }
};

}  // namespace

TEST_CASE("an offloaded optimizer has the bits of one in memory, for all rules, chunks, buffers and engines") {
    const Folder folder;
    for (const auto engine : engines(folder))
        for (int algorithm = weftTrainSgd; algorithm <= weftTrainLars; ++algorithm)
            for (const int values : {0, 1})
                for (const auto& [chunk, buffers] :
                     std::vector<std::pair<size_t, int>>{{1, 1}, {1, 2}, {2500, 3}, {1024, 4}, {0, 4}, {3000, 64}}) {
                    CAPTURE(int(engine), algorithm, values, chunk, buffers);
                    auto config = config_of(weftTrainAlgorithm_t(algorithm));
                    config.offloadValues = values;
                    config.offloadChunk = chunk;
                    config.offloadBuffers = buffers;
                    config.offloadEngine = engine;
                    CHECK(trains(config, folder, nullptr, 1, 0) == "");
                }
    CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("an offloaded optimizer has the bits of one in memory on the disk of temporary files") {
    const Folder folder(true);
    for (const auto engine : engines(folder))
        for (const int values : {0, 1}) {
            auto config = config_of(weftTrainLamb);
            config.offloadValues = values;
            config.offloadChunk = 2048;
            config.offloadEngine = engine;
            CHECK(trains(config, folder, nullptr, 1, 0) == "");
        }
    CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("rules without moments and offloaded values keep their bits, too") {
    const Folder folder;
    for (const int values : {0, 1}) {
        auto config = config_of(weftTrainSgd);
        config.momentum = 0;
        config.offloadValues = values;
        CHECK(trains(config, folder, nullptr, 1, 0) == "");
    }
}

TEST_CASE("ranks that share a folder offload shards, also empty ones") {
    const Folder folder;
    for (const auto algorithm : {weftTrainAdamW, weftTrainLamb, weftTrainLars})
        for (const int values : {0, 1}) {
            CAPTURE(int(algorithm), values);
            auto config = config_of(algorithm);
            config.offloadValues = values;
            config.offloadChunk = 1024;
            for (const std::string& wrong : on_threads(
                     3, nullptr, [&](weftComm_t comm, int rank) { return trains(config, folder, comm, 3, rank); }))
                CHECK(wrong == "");
        }
}

TEST_CASE("states go from a disk to memory, and back to another disk") {
    const Folder folder;
    auto config = config_of(weftTrainAdamW);
    Parts first(seed()), second(seed() + 1), third(seed() + 2);
    config.offloadFolder = folder.path.c_str();
    config.offloadChunk = 1024;
    REQUIRE(first.make(config) == weftSuccess);
    config.offloadFolder = nullptr;
    REQUIRE(second.make(config) == weftSuccess);
    config.offloadFolder = folder.path.c_str();
    config.offloadChunk = 2048;
    REQUIRE(third.make(config) == weftSuccess);
    for (int step = 0; step < 2; ++step) REQUIRE(first.step(step) == weftSuccess);
    REQUIRE(second.restore(first) == "");
    REQUIRE(third.restore(second) == "");
    CHECK(third.differs(second) == "");
    REQUIRE(second.step(2) == weftSuccess);
    REQUIRE(third.step(2) == weftSuccess);
    CHECK(third.differs(second) == "");
}

TEST_CASE("a rank without its folder is an error on all ranks, and nothing is left behind") {
    const Folder folder;
    const std::string none = folder.path + "/none";
    const auto seen = on_threads(3, nullptr, [&](weftComm_t comm, int rank) {
        Parts parts(1, 3, rank);
        auto config = config_of(weftTrainAdam);
        config.offloadFolder = rank == 1 ? none.c_str() : folder.path.c_str();
        return id_of(parts.make(config, comm)) + (parts.get() ? " made" : "");
    });
    CHECK(seen == std::vector<std::string>{"train.offload-peer", "train.offload", "train.offload-peer"});
    // A wrong argument of one rank as well.
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
        Parts parts(1, 2, rank);
        auto config = config_of(weftTrainAdam);
        config.offloadFolder = folder.path.c_str();
        config.offloadBuffers = rank == 0 ? 0 : 4;
        return id_of(parts.make(config, comm));
    });
    CHECK(wrong == std::vector<std::string>{"argument.config", "train.offload-peer"});
    CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("a limit of file sizes is an error when the optimizer is made") {
    const Folder folder;
    Parts parts(1);
    auto config = config_of(weftTrainAdam);
    config.offloadFolder = folder.path.c_str();
    const FileSizeLimit limit(10'000);
    CHECK(id_of(parts.make(config)) == "train.offload");
}

TEST_CASE("a step that cannot write is an error on all ranks, and so are those after it") {
    const Folder folder;
    signal(SIGXFSZ, SIG_IGN);
    for (const auto engine : engines(folder)) {
        const auto seen = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            std::vector<float> values(rank == 0 ? 100'000 : 100, 1.0f), gradient(values.size(), 1.0f);
            weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
            part.name = "shard";
            part.values = values.data();
            part.gradient = gradient.data();
            part.count = values.size();
            part.axes = 1;
            auto config = config_of(weftTrainAdam);
            config.offloadFolder = folder.path.c_str();
            config.offloadChunk = 1024;
            config.offloadEngine = engine;
            weftTrainOptimizer_t optimizer = nullptr;
            std::string notes = id_of(weftTrainOptimizerCreate(&optimizer, &part, 1, &comm, 1, &config));
            const auto step = [&] { notes += " " + id_of(weftTrainOptimizerStep(optimizer, 0.1, 1, 0, nullptr)); };
            step();
            if (weftBarrier(comm, nullptr) != weftSuccess) return newest_id();
            {
                std::optional<FileSizeLimit> limit;  // of the process: rank 1's file is smaller
                if (rank == 0) limit.emplace(16'384);
                step();
            }
            step();
            uint64_t steps = 0;
            if (weftTrainOptimizerGetSteps(optimizer, 0, &steps) != weftSuccess || steps != 1) notes += " steps";
            return notes + id_of(weftTrainOptimizerDestroy(optimizer));
        });
        CHECK(seen ==
              std::vector<std::string>{"  train.offload train.offload", "  train.offload-peer train.offload-peer"});
    }
    signal(SIGXFSZ, SIG_DFL);
}

TEST_CASE("wrong use of offload is an error with an id") {
    const Folder folder;
    using Change = void (*)(weftTrainOptimizerConfig_t&);
    const Change changes[] = {
        [](auto& config) { config.offloadFolder = ""; },
        [](auto& config) { config.offloadValues = 2; },
        [](auto& config) { config.offloadChunk = size_t(1) << 27; },
        [](auto& config) { config.offloadBuffers = 0; },
        [](auto& config) { config.offloadBuffers = 65; },
        [](auto& config) { config.offloadEngine = weftTrainOffloadEngine_t(3); },
    };
    for (const Change change : changes) {
        Parts parts(1);
        auto config = config_of(weftTrainAdam);
        config.offloadFolder = folder.path.c_str();
        change(config);
        CHECK(id_of(parts.make(config)) == "argument.config");
    }
    Parts parts(1);
    auto config = config_of(weftTrainAdam);
    config.offloadFolder = folder.path.c_str();
    REQUIRE(parts.make(config) == weftSuccess);
    const char* name = nullptr;
    float* state = nullptr;
    float values[1];
    CHECK(id_of(weftTrainOptimizerGetState(parts.get(), 1, 0, &name, &state)) == "train.offload-state");
    CHECK(id_of(weftTrainOptimizerReadState(parts.get(), 1, 0, nullptr)) == "argument.null");
    CHECK(id_of(weftTrainOptimizerReadState(parts.get(), 1, 2, values)) == "argument.value");
    CHECK(id_of(weftTrainOptimizerWriteState(parts.get(), 9, 0, values)) == "argument.value");
    CHECK(weftTrainOptimizerReadState(parts.get(), 0, 0, nullptr) == weftSuccess);  // has no elements

    // A caller of an earlier version.
    Parts old(1);
    config.size = offsetof(weftTrainOptimizerConfig_t, offloadFolder);
    REQUIRE(old.make(config) == weftSuccess);
    CHECK(weftTrainOptimizerGetState(old.get(), 1, 0, &name, &state) == weftSuccess);
}
