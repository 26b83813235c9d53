#include "tests/comm/random_programs.hpp"

#include <random>
#include <vector>

#include "tests/comm/random_call.hpp"

namespace weft::test {

namespace {

constexpr size_t most_families = 4;
constexpr int most_calls = 6, stream_count = 2;

class Program {
  public:
    Program(weftComm_t world, const Sequence& sequence) : sequence_(sequence), all_(sequence.seed) {
        add(world);
        own_.seed(sequence.seed * 31 + uint32_t(families_[0].rank));
        for (weftStream_t& stream : streams_) check(weftStreamCreate(&stream));
    }

    std::string run() {
        for (round_ = 0; round_ < sequence_.calls && wrong_.empty(); ++round_) {
            const uint32_t what = draw(all_, 10);
            if (what == 0 && families_.size() < most_families)
                split();
            else if (what == 1 && families_.size() > 1)
                end_one();
            else
                round();
        }
        for (weftStream_t stream : streams_) check(weftStreamDestroy(stream));
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
    };
    struct Pending {
        std::unique_ptr<RandomCall> call;  // or a message that goes around
        size_t family;
        std::vector<int> sent, received;
        int from = 0;
    };

    static uint32_t draw(std::mt19937& random, uint32_t below) { return random() % below; }
    void check(bool right, const std::string& what) {
        if (!right && wrong_.empty())
            wrong_ = "seed " + std::to_string(sequence_.seed) + ", round " + std::to_string(round_) + ": " + what;
    }
    void check(weftResult_t code) {
        if (code != weftSuccess) check(false, weftGetLastError(nullptr));
    }
    void add(weftComm_t comm) {
        Member member{comm, 0, 0};
        check(weftCommUserRank(comm, &member.rank));
        check(weftCommCount(comm, &member.ranks));
        families_.push_back(member);
    }
    weftStream_t any_stream() {
        const uint32_t which = draw(own_, stream_count + 1);
        return which < stream_count ? streams_[which] : nullptr;
    }

    void split() {
        const Member& parent = families_[draw(all_, uint32_t(families_.size()))];
        const uint32_t colors = 1 + draw(all_, 2), turn = draw(all_, 8);
        weftComm_t child = nullptr;
        check(weftCommSplit(parent.comm, int((uint32_t(parent.rank) + turn) % colors), -parent.rank, &child, nullptr));
        if (wrong_.empty()) add(child);
    }

    void end_one() {
        const size_t which = 1 + draw(all_, uint32_t(families_.size() - 1));
        check(weftCommDestroy(families_[which].comm));
        families_.erase(families_.begin() + ptrdiff_t(which));
    }

    // A call or a message on a communicator of the round's choice.
    weftResult_t issue(Pending& pending, weftStream_t stream, bool in_group) {
        const Member& member = families_[pending.family];
        if (pending.call) return pending.call->issue(member.comm, stream, in_group);
        const int to = (member.rank + 1) % member.ranks;
        pending.from = (member.rank + member.ranks - 1) % member.ranks;
        for (size_t i = 0; i < pending.sent.size(); ++i) pending.sent[i] = member.rank * 1000 + round_ + int(i);
        return weftSendRecv(pending.sent.data(), pending.sent.size(), to, pending.received.data(),
                            pending.received.size(), pending.from, weftInt32, member.comm, stream);
    }

    void judge(const Pending& pending) {
        if (pending.call) {
            std::string wrong = pending.call->fault();
            if (wrong.empty()) wrong = pending.call->differing_bits(families_[pending.family].comm);
            check(wrong.empty(), pending.call->name() + ": " + wrong);
            return;
        }
        for (size_t i = 0; i < pending.received.size(); ++i)
            check(pending.received[i] == pending.from * 1000 + round_ + int(i), "a message is not what was sent");
    }

    void round() {
        const int calls = 1 + int(draw(all_, most_calls));
        const bool grouped = draw(all_, 3) == 0;
        const weftStream_t of_group = any_stream();
        std::vector<Pending> pending;
        std::vector<weftPrepared_t> prepared;
        if (grouped) check(weftGroupStart());
        for (int i = 0; i < calls; ++i) {
            Pending next;
            next.family = draw(all_, uint32_t(families_.size()));
            const Member& member = families_[next.family];
            if (draw(all_, 5) == 0) {
                next.sent.resize(draw(all_, 2) ? draw(all_, 5000) : draw(all_, 9));
                next.received.resize(next.sent.size());
            } else {
                next.call = std::make_unique<RandomCall>(sequence_, round_ * most_calls + i, member.rank, member.ranks);
            }
            const bool prepares = !grouped && draw(own_, 4) == 0;
            const weftStream_t stream = grouped ? of_group : any_stream();
            pending.push_back(std::move(next));
            if (prepares) check(weftGroupStart());
            check(issue(pending.back(), stream, grouped || prepares));
            if (!prepares) continue;
            weftPrepared_t made = nullptr;
            check(weftGroupPrepare(&made));
            check(weftPreparedStart(made));
            prepared.push_back(made);
        }
        if (grouped) check(weftGroupEnd());
        for (weftPrepared_t made : prepared) check(weftPreparedDestroy(made));
        for (weftStream_t stream : streams_) check(weftStreamWait(stream, WEFT_STREAM_ALL, -1));
        for (const Pending& each : pending)
            if (wrong_.empty()) judge(each);
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

}  // namespace weft::test
