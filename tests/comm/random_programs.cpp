#include "tests/comm/random_programs.hpp"

#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/comm/random_call.hpp"
#include "tests/comm/random_steps.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t most_families = 4;
constexpr int most_calls = 6, stream_count = 2;

class Program {
  public:
    Program(weftComm_t world, const Sequence& sequence) : sequence_(sequence), all_(sequence.seed) {
        sequence_.functions = true;
        int rank = 0;
        check(weftCommUserRank(world, &rank));
        own_.seed(sequence.seed * 31 + uint32_t(rank));
        add(world);
        for (weftStream_t& stream : streams_) check(weftStreamCreate(&stream));
    }

    std::string run() {
        for (round_ = 0; round_ < sequence_.calls && wrong_.empty(); ++round_) {
            const uint32_t what = draw(all_, 12);
            if (what < 2 && families_.size() < most_families)
                split();
            else if (what == 2 && families_.size() > 1)
                end_one();
            else if (what == 3)
                set_call_config();
            else if (what == 4 && families_.size() < most_families)
                shrink();
            else
                round();
        }
        for (weftStream_t stream : streams_) check(weftStreamDestroy(stream));
        for (Member& member : families_) {
            if (wrong_.empty()) check(member.window->close(member.comm));
            if (!wrong_.empty()) member.window->leave();
        }
        for (size_t i = 1; i < families_.size(); ++i) {
            if (!wrong_.empty())
                (void)weftCommAbort(families_[i].comm);
            else
                check(weftCommDestroy(families_[i].comm));
        }
        return wrong_;
    }

  private:
    // A communicator of which every rank has one, perhaps with others in it.
    struct Member {
        weftComm_t comm;
        int rank, ranks;
        std::unique_ptr<RandomWindow> window;
    };

    static uint32_t draw(std::mt19937& random, uint32_t below) { return random() % below; }
    void check(bool right, const std::string& what) {
        if (!right && wrong_.empty())
            wrong_ = "seed " + std::to_string(sequence_.seed) + ", round " + std::to_string(round_) + ": " + what;
    }
    void check(weftResult_t code) {
        if (code != weftSuccess) check(false, weftGetLastError(nullptr));
    }
    // A communicator that does not block is not done yet.
    void check_begun(weftResult_t code) { check(code == weftInProgress ? weftSuccess : code); }
    void check_settled(weftComm_t comm, weftResult_t code) {
        if (settled(comm, code) != weftSuccess) check(false, weftGetLastError(comm));
    }
    void add(weftComm_t comm) {
        Member member{comm, 0, 0, nullptr};
        check(weftCommUserRank(comm, &member.rank));
        check(weftCommCount(comm, &member.ranks));
        member.window = std::make_unique<RandomWindow>(member.rank, most_calls, draw(own_, 2) == 0);
        check_settled(comm, member.window->open(comm));
        families_.push_back(std::move(member));
    }
    weftStream_t any_stream() {
        const uint32_t which = draw(own_, 2 * stream_count);
        return which < stream_count ? streams_[which] : nullptr;
    }

    void split() {
        const Member& parent = families_[draw(all_, uint32_t(families_.size()))];
        const uint32_t colors = 1 + draw(all_, 2), turn = draw(all_, 8);
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.blocking = draw(own_, 2) == 0;
        weftComm_t child = nullptr;
        const weftResult_t begun =
            weftCommSplit(parent.comm, int((uint32_t(parent.rank) + turn) % colors), -parent.rank, &child, &config);
        check_begun(begun);
        if (wrong_.empty()) check_settled(parent.comm, begun);
        if (wrong_.empty()) check_settled(child, begun);
        if (wrong_.empty()) add(child);
    }

    // Without one rank, which has a communicator of its own in that one's place.
    void shrink() {
        const Member& parent = families_[draw(all_, uint32_t(families_.size()))];
        int excluded = int(draw(all_, 64)) % parent.ranks;
        weftComm_t child = nullptr;
        if (parent.ranks == 1 || parent.rank == excluded) {
            weftUniqueId id;
            check(weftGetUniqueId(&id));
            check(weftCommInitRank(&child, 1, id, 0));
        } else {
            weftConfig_t config = WEFT_CONFIG_INITIALIZER;
            config.blocking = draw(own_, 2) == 0;
            const weftResult_t begun = weftCommShrink(parent.comm, &excluded, 1, &child, &config, WEFT_SHRINK_DEFAULT);
            check_begun(begun);
            if (wrong_.empty()) check_settled(parent.comm, begun);
            if (wrong_.empty()) check_settled(child, begun);
        }
        if (wrong_.empty()) add(child);
    }

    void end_one() {
        const size_t which = 1 + draw(all_, uint32_t(families_.size() - 1));
        const bool closes = draw(all_, 2) == 0;
        Member& member = families_[which];
        if (closes) check_settled(member.comm, member.window->close(member.comm));
        if (draw(own_, 2)) check_settled(member.comm, weftCommFinalize(member.comm));
        check(weftCommDestroy(member.comm));
        families_.erase(families_.begin() + ptrdiff_t(which));
    }

    // Of what every call can do without.
    void set_call_config() {
        static constexpr const char* algos[] = {nullptr, "^ring", "^one_shot", "^two_shot,^ring",
                                                "all_reduce:^one_shot"};
        weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
        const Member& member = families_[draw(all_, uint32_t(families_.size()))];
        config.algo = algos[draw(all_, uint32_t(std::size(algos)))];
        if (draw(all_, 2)) config.channels = int(draw(all_, 4));
        if (draw(own_, 2)) config.timeoutMs = 150'000;
        check(weftCommSetCallConfig(member.comm, draw(all_, 4) == 0 ? nullptr : &config));
    }

    void round() {
        const int calls = 1 + int(draw(all_, most_calls));
        const bool grouped = draw(all_, 3) == 0;
        const weftStream_t of_group = any_stream();
        std::vector<std::unique_ptr<RandomStep>> steps;
        std::vector<weftPrepared_t> prepared;
        if (grouped) check(weftGroupStart());
        for (int i = 0; i < calls; ++i) {
            const Member& member = families_[draw(all_, uint32_t(families_.size()))];
            steps.push_back(draw_step(sequence_, {member.comm, member.rank, member.ranks, member.window.get()},
                                      round_ * most_calls + i, i, all_));
            const bool prepares = !grouped && draw(own_, 4) == 0;
            const weftStream_t stream = grouped ? of_group : any_stream();
            if (prepares) check(weftGroupStart());
            check_begun(steps.back()->issue(stream, grouped || prepares));
            if (!prepares) continue;
            weftPrepared_t made = nullptr;
            check(weftGroupPrepare(&made));
            check_begun(weftPreparedStart(made));
            prepared.push_back(made);
        }
        if (grouped) check_begun(weftGroupEnd());
        for (weftPrepared_t made : prepared) check(weftPreparedDestroy(made));
        for (weftStream_t stream : streams_) await(stream);
        for (const Member& member : families_) check_settled(member.comm, weftInProgress);
        for (const auto& step : steps)
            if (wrong_.empty())
                if (const std::string fault = step->fault(); !fault.empty()) check(false, fault);
    }

    // By asking, by waiting for some of its calls first, or for all of them.
    void await(weftStream_t stream) {
        const uint32_t way = draw(own_, 3);
        uint64_t mark = 0;
        check(weftStreamMark(stream, &mark));
        weftResult_t state = way == 0 ? weftInProgress : weftSuccess;
        while (state == weftInProgress) {
            state = weftStreamTest(stream, mark);
            std::this_thread::yield();
        }
        check(state);
        if (way == 1) check(weftStreamWait(stream, mark / 2, -1));
        check(weftStreamWait(stream, WEFT_STREAM_ALL, -1));
        check(weftStreamTest(stream, WEFT_STREAM_ALL));
    }

    Sequence sequence_;
    std::mt19937 all_, own_;  // what all ranks draw alike; what this one does
    int round_ = 0;
    std::vector<Member> families_;
    weftStream_t streams_[stream_count] = {};
    std::string wrong_;
};

}  // namespace

std::string run_random_program(weftComm_t world, const Sequence& sequence) { return Program(world, sequence).run(); }

}  // namespace weft::internal::test
