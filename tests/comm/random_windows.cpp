#include "tests/comm/random_windows.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "src/base/datatype.hpp"
#include "tests/comm/random_data.hpp"

namespace weft::internal::test {

namespace {

using Bytes = RandomBytes;
constexpr int windows = 2, rounds_of_windows = 6;

// The content of all ranks' parts, by window and rank.
struct Model {
    std::vector<Bytes> parts[windows];

    Model(uint32_t seed, int ranks, size_t most_bytes) {
        std::mt19937 random(seed);
        for (auto& parts_of_one : parts)
            for (int rank = 0; rank < ranks; ++rank)
                parts_of_one.emplace_back(random() % 8 == 0 ? 0 : random() % (most_bytes + 1));
    }
};

struct Call {
    enum class Kind { put, put_signal, signal, get } kind;
    int origin, target, window;
    size_t offset, count;
    weftDataType_t type;
    int signal, context;
    size_t bytes() const { return count * size_of(type); }
    bool signals() const { return kind == Kind::put_signal || kind == Kind::signal; }
};

// A round as all ranks draw it: calls that write or read disjoint ranges, so that their order does not matter. A wait
// of the second phase may consume a signal of the first.
struct Round {
    uint32_t seed;
    int ranks;
    std::vector<Call> phases[2];
    std::map<std::tuple<int, size_t>, Bytes> got;  // by phase and call
    bool reduces;

    Round(const WindowSequence& sequence, int index, Model& model) {
        std::seed_seq seeds{sequence.seed, uint32_t(index)};
        std::mt19937 random(seeds);
        seed = uint32_t(random());
        ranks = int(model.parts[0].size());
        reduces = random() % 2;
        std::map<std::pair<int, int>, size_t> taken;  // how much of a part others' calls have, by window and rank
        std::map<std::pair<int, int>, bool> owed;     // puts that no signal has followed, by origin and target
        for (int phase = 0; phase < 2; ++phase) {
            const size_t many = random() % size_t(5 * ranks);
            for (size_t i = 0; i < many; ++i) add(phase, random, taken, owed, model);
        }
        for (const auto& [pair, owes] : owed)
            if (owes) phases[1].push_back({Call::Kind::signal, pair.first, pair.second, 0, 0, 0, weftInt8, 0, 0});
        for (int phase = 0; phase < 2; ++phase)
            for (size_t i = 0; i < phases[phase].size(); ++i) {
                const Call& call = phases[phase][i];
                if (call.kind == Call::Kind::put || call.kind == Call::Kind::put_signal)
                    for (size_t at = 0; at < call.bytes(); ++at) place(model, call)[at] = data(phase, i, at);
                else if (call.kind == Call::Kind::get)
                    got[{phase, i}].assign(place(model, call), place(model, call) + call.bytes());
            }
    }
    std::byte data(int phase, size_t call, size_t at) const { return content(seed, 2 * call + size_t(phase), at); }

  private:
    static std::byte* place(Model& model, const Call& call) {
        return model.parts[call.window][size_t(call.target)].data() + call.offset;
    }
    void add(int phase, std::mt19937& random, std::map<std::pair<int, int>, size_t>& taken,
             std::map<std::pair<int, int>, bool>& owed, Model& model) {
        Call call{Call::Kind(random() % 4),
                  int(random() % unsigned(ranks)),
                  int(random() % unsigned(ranks)),
                  int(random() % windows),
                  0,
                  0,
                  weftDataType_t(random() % weftNumTypes),
                  int(random() % 3) * 7,
                  int(random() % 2) * 3};
        const size_t size = model.parts[call.window][size_t(call.target)].size();
        size_t& from = taken[{call.window, call.target}];
        if (call.kind != Call::Kind::signal) {
            // A get may read this rank's last put; all other ranges are disjoint.
            const bool again =
                call.kind == Call::Kind::get && !phases[phase].empty() && random() % 2 &&
                (phases[phase].back().kind == Call::Kind::put || phases[phase].back().kind == Call::Kind::put_signal);
            if (again) {
                call = phases[phase].back();
                call.kind = Call::Kind::get;
            } else {
                const size_t most = random() % 4 == 0 ? size / 2 : 300;
                call.offset = std::min(size, from + random() % 40);
                call.count = std::min(size - call.offset, random() % (most + 1)) / size_of(call.type);
                from = call.offset + call.bytes();
            }
        }
        bool& owes = owed[{call.origin, call.target}];
        if (call.kind == Call::Kind::put) owes = true;
        if (call.signals()) owes = false;
        phases[phase].push_back(call);
    }
};

// A rank's windows, in memory of either kind.
class Memory {
  public:
    Memory(const Model& model, int rank, uint32_t seed) {
        std::seed_seq seeds{seed, uint32_t(rank), 3u};
        std::mt19937 random(seeds);
        for (int window = 0; window < windows; ++window) {
            const Bytes& part = model.parts[window][size_t(rank)];
            bytes[window] = part.size();
            if (random() % 2)
                shared_[window] = weftHostAlloc(&data[window], part.size() + 1) == weftSuccess;
            else
                data[window] = malloc(part.size() + 1);
            if (!part.empty()) memcpy(data[window], part.data(), part.size());
        }
    }
    ~Memory() {
        for (int window = 0; window < windows; ++window)
            if (shared_[window])
                (void)weftMemFree(data[window]);
            else
                free(data[window]);
    }
    Memory(const Memory&) = delete;
    weftResult_t open(weftComm_t comm) {
        for (int window = 0; window < windows; ++window)
            if (const weftResult_t result =
                    weftCommWindowRegister(comm, data[window], bytes[window], &handles[window], WEFT_WIN_DEFAULT);
                result != weftSuccess)
                return result;
        return weftSuccess;
    }
    weftResult_t close(weftComm_t comm) {
        for (weftWindow_t window : handles)
            if (const weftResult_t result = weftCommWindowDeregister(comm, window); result != weftSuccess)
                return result;
        return weftSuccess;
    }

    void* data[windows];
    size_t bytes[windows];
    weftWindow_t handles[windows];

  private:
    bool shared_[windows] = {};
};

// A rank's part of a round.
class Part {
  public:
    Part(const Round& round, int rank) : round_(round), rank_(rank), random_(seeded(round.seed, rank)) {
        std::vector<Step> steps[2];
        for (int phase = 0; phase < 2; ++phase)
            for (size_t i = 0; i < round.phases[phase].size(); ++i) {
                const Call& call = round.phases[phase][i];
                if (call.origin != rank) continue;
                Bytes& buffer = buffers_[{phase, i}];
                buffer.resize(call.kind == Call::Kind::signal ? 0 : call.bytes());
                if (call.kind != Call::Kind::get)
                    for (size_t at = 0; at < buffer.size(); ++at) buffer[at] = round.data(phase, i, at);
                steps[phase].push_back({phase, i, {}});
            }
        steps_ = steps[0];
        // The second phase's calls and waits for what the first one signals, in any order but each in its own.
        std::vector<Step> waits = draw_waits(0);
        size_t next[2] = {};
        std::vector<int> order(steps[1].size(), 0);
        order.insert(order.end(), waits.size(), 1);
        std::shuffle(order.begin(), order.end(), random_);
        for (const int which : order) steps_.push_back(which ? waits[next[1]++] : steps[1][next[0]++]);
        if (round.reduces) steps_.push_back({-1, 0, {}});
        waits = draw_waits(1);
        steps_.insert(steps_.end(), waits.begin(), waits.end());
        sum_ = rank + 1;
    }

    bool idle() const { return steps_.empty(); }
    weftResult_t post(weftComm_t comm, const Memory& memory, weftStream_t stream) {
        for (Step& step : steps_) {
            const weftResult_t result = post(step, comm, memory, stream);
            if (result != weftSuccess) return result;
        }
        return weftSuccess;
    }

    std::string fault(const Memory& memory, const Model& model) const {
        for (const auto& [key, buffer] : buffers_) {
            const auto& [phase, index] = key;
            const Call& call = round_.phases[phase][index];
            for (size_t at = 0; at < buffer.size(); ++at)
                if (buffer[at] !=
                    (call.kind == Call::Kind::get ? round_.got.at(key)[at] : round_.data(phase, index, at)))
                    return (call.kind == Call::Kind::get ? "a get from rank " : "the buffer of a put to rank ") +
                           std::to_string(call.target) + ", " + std::to_string(call.bytes()) + " bytes, is wrong at " +
                           std::to_string(at);
        }
        for (int window = 0; window < windows; ++window) {
            const Bytes& part = model.parts[window][size_t(rank_)];
            const auto* data = static_cast<const std::byte*>(memory.data[window]);
            for (size_t at = 0; at < part.size(); ++at)
                if (data[at] != part[at])
                    return "window " + std::to_string(window) + " of " + std::to_string(part.size()) +
                           " bytes is wrong at " + std::to_string(at);
        }
        if (round_.reduces && sum_ != round_.ranks * (round_.ranks + 1) / 2) return "the all-reduce is wrong";
        return "";
    }

  private:
    struct Step {
        int phase;  // -1: an all-reduce
        size_t call;
        std::vector<weftWaitSignalDesc_t> waits;
    };
    static std::mt19937 seeded(uint32_t seed, int rank) {
        std::seed_seq seeds{seed, uint32_t(rank)};
        return std::mt19937(seeds);
    }
    // All signals of a phase that are for this rank, a few at a time in any order.
    std::vector<Step> draw_waits(int phase) {
        std::vector<weftWaitSignalDesc_t> all;
        for (const Call& call : round_.phases[phase])
            if (call.target == rank_ && call.signals()) all.push_back({1, call.origin, call.signal, call.context});
        std::shuffle(all.begin(), all.end(), random_);
        std::vector<Step> steps;
        for (const weftWaitSignalDesc_t& each : all) {
            if (steps.empty() || random_() % 2) steps.push_back({0, 0, {}});
            auto& waits = steps.back().waits;
            const bool same = !waits.empty() && waits.back().peer == each.peer && waits.back().sigIdx == each.sigIdx &&
                              waits.back().ctx == each.ctx;
            same ? void(++waits.back().opCnt) : waits.push_back(each);
        }
        return steps;
    }
    weftResult_t post(Step& step, weftComm_t comm, const Memory& memory, weftStream_t stream) {
        if (step.phase < 0) return weftAllReduce(&sum_, &sum_, 1, weftInt32, weftSum, comm, stream);
        if (!step.waits.empty()) return weftWaitSignal(int(step.waits.size()), step.waits.data(), comm, stream);
        const Call& call = round_.phases[step.phase][step.call];
        std::byte* buffer = buffers_[{step.phase, step.call}].data();
        weftWindow_t window = memory.handles[call.window];
        switch (call.kind) {
            case Call::Kind::put:
                return weftPut(buffer, call.count, call.type, call.target, window, call.offset, comm, stream);
            case Call::Kind::put_signal:
                return weftPutSignal(buffer, call.count, call.type, call.target, window, call.offset, call.signal,
                                     call.context, 0, comm, stream);
            case Call::Kind::get:
                return weftGet(buffer, call.count, call.type, call.target, window, call.offset, comm, stream);
            default: return weftSignal(call.target, call.signal, call.context, 0, comm, stream);
        }
    }

    const Round& round_;
    int rank_;
    std::mt19937 random_;
    std::vector<Step> steps_;
    std::map<std::tuple<int, size_t>, Bytes> buffers_;
    int sum_ = 0;
};

std::string wrong(const WindowSequence& sequence, int round, int rank, const std::string& what) {
    return "rank " + std::to_string(rank) + ", seed " + std::to_string(sequence.seed) + ", round " +
           std::to_string(round) + ": " + what;
}

}  // namespace

std::string run_random_windows(weftComm_t comm, const WindowSequence& sequence) {
    int rank = 0, ranks = 0;
    (void)weftCommUserRank(comm, &rank);
    (void)weftCommCount(comm, &ranks);
    Model model(sequence.seed, ranks, sequence.most_bytes);
    weftStream_t stream = nullptr;
    std::unique_ptr<Memory> memory;
    std::string fault;
    const auto run_round = [&](int index) -> std::string {
        if (index % rounds_of_windows == 0) {
            if (memory && memory->close(comm) != weftSuccess) return weftGetLastError(nullptr);
            memory = std::make_unique<Memory>(model, rank, sequence.seed + uint32_t(index));
            if (memory->open(comm) != weftSuccess) return weftGetLastError(nullptr);
        }
        const Round round(sequence, index, model);
        Part part(round, rank);
        // Each rank calls in a way of its own: one by one, in a group, on a stream.
        const int way = (index + rank) % 3;
        if (way == 1) (void)weftGroupStart();
        weftResult_t result = part.post(comm, *memory, way == 2 ? stream : nullptr);
        if (way == 1) {
            const weftResult_t ended = weftGroupEnd();
            if (result == weftSuccess) result = ended;
        }
        if (way == 2 && result == weftSuccess) result = weftStreamWait(stream, WEFT_STREAM_ALL, -1);
        if (result != weftSuccess) return weftGetLastError(nullptr);
        const std::string found = part.fault(*memory, model);
        // No rank begins again before all have looked.
        if (weftBarrier(comm, nullptr) != weftSuccess) return weftGetLastError(nullptr);
        return found;
    };
    if (weftStreamCreate(&stream) != weftSuccess) return weftGetLastError(nullptr);
    for (int index = 0; index < sequence.rounds && fault.empty(); ++index)
        if (const std::string found = run_round(index); !found.empty()) fault = wrong(sequence, index, rank, found);
    (void)weftStreamDestroy(stream);
    if (fault.empty() && memory && memory->close(comm) != weftSuccess) fault = weftGetLastError(nullptr);
    if (!fault.empty()) (void)memory.release();  // others may still be at it
    return fault;
}

std::string run_random_windows_of_all(const std::vector<weftComm_t>& comms, const WindowSequence& sequence) {
    const int ranks = int(comms.size());
    Model model(sequence.seed, ranks, sequence.most_bytes);
    std::vector<std::unique_ptr<Memory>> memories;
    const auto in_group = [&](auto&& post) {
        weftResult_t result = weftGroupStart();
        for (int rank = 0; rank < ranks && result == weftSuccess; ++rank) result = post(rank);
        const weftResult_t ended = weftGroupEnd();
        return result == weftSuccess ? ended : result;
    };
    for (int rank = 0; rank < ranks; ++rank) memories.push_back(std::make_unique<Memory>(model, rank, sequence.seed));
    if (in_group([&](int rank) { return memories[size_t(rank)]->open(comms[size_t(rank)]); }) != weftSuccess)
        return weftGetLastError(nullptr);
    for (int index = 0; index < sequence.rounds; ++index) {
        Round round(sequence, index, model);
        // The group drives the ranks that have calls in it; across hosts a rank serves inside its calls only.
        for (int rank = 0; rank < ranks; ++rank) round.reduces |= Part(round, rank).idle();
        std::vector<std::unique_ptr<Part>> parts;
        for (int rank = 0; rank < ranks; ++rank) parts.push_back(std::make_unique<Part>(round, rank));
        if (in_group([&](int rank) {
                return parts[size_t(rank)]->post(comms[size_t(rank)], *memories[size_t(rank)], nullptr);
            }) != weftSuccess)
            return wrong(sequence, index, 0, weftGetLastError(nullptr));
        for (int rank = 0; rank < ranks; ++rank)
            if (const std::string found = parts[size_t(rank)]->fault(*memories[size_t(rank)], model); !found.empty())
                return wrong(sequence, index, rank, found);
    }
    if (in_group([&](int rank) { return memories[size_t(rank)]->close(comms[size_t(rank)]); }) != weftSuccess)
        return weftGetLastError(nullptr);
    return "";
}

}  // namespace weft::internal::test
