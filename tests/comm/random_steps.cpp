#include "tests/comm/random_steps.hpp"

#include <chrono>
#include <cstdlib>

#include "tests/comm/random_call.hpp"
#include "tests/comm/random_uneven.hpp"

namespace weft::internal::test {

namespace {

bool fine(weftResult_t result) { return result == weftSuccess || result == weftInProgress; }

class CollectiveStep : public RandomStep {
  public:
    CollectiveStep(const Sequence& sequence, const RandomPlace& place, int number)
        : comm_(place.comm), call_(sequence, number, place.rank, place.ranks) {}
    weftResult_t issue(weftStream_t stream, bool in_group) override { return call_.issue(comm_, stream, in_group); }
    std::string fault() override {
        std::string wrong = call_.fault();
        if (wrong.empty() && call_.end(comm_) != weftSuccess) wrong = weftGetLastError(comm_);
        if (wrong.empty()) wrong = call_.differing_bits(comm_);
        return wrong.empty() ? "" : call_.name() + ": " + wrong;
    }

  private:
    weftComm_t comm_;
    RandomCall call_;
};

class UnevenStep : public RandomStep {
  public:
    UnevenStep(const Sequence& sequence, const RandomPlace& place, int number)
        : comm_(place.comm), uneven_(sequence.seed, number, place.rank, place.ranks, sequence.most_elements) {}
    weftResult_t issue(weftStream_t stream, bool) override { return uneven_.issue(comm_, stream); }
    std::string fault() override {
        const std::string wrong = uneven_.fault();
        return wrong.empty() ? "" : std::string(uneven_.name()) + ": " + wrong;
    }

  private:
    weftComm_t comm_;
    RandomUneven uneven_;
};

// Each rank to the next one.
class MessageStep : public RandomStep {
  public:
    MessageStep(const RandomPlace& place, int number, size_t elements)
        : comm_(place.comm),
          to_((place.rank + 1) % place.ranks),
          from_((place.rank + place.ranks - 1) % place.ranks),
          number_(number),
          sent_(elements),
          received_(elements) {
        for (size_t i = 0; i < elements; ++i) sent_[i] = element(place.rank, i);
    }
    weftResult_t issue(weftStream_t stream, bool) override {
        return weftSendRecv(sent_.data(), sent_.size(), to_, received_.data(), received_.size(), from_, weftInt32,
                            comm_, stream);
    }
    std::string fault() override {
        for (size_t i = 0; i < received_.size(); ++i)
            if (received_[i] != element(from_, i)) return "a message is not what was sent";
        return "";
    }

  private:
    int element(int rank, size_t index) const { return rank * 100'000 + number_ * 17 + int(index); }

    weftComm_t comm_;
    int to_, from_, number_;
    std::vector<int> sent_, received_;
};

// Pairs of ranks, each with its own send and receive; a rank without a partner does nothing.
class PairStep : public RandomStep {
  public:
    PairStep(const RandomPlace& place, int number, size_t elements)
        : place_(place), partner_(place.rank ^ 1), number_(number), sent_(elements), received_(elements) {
        for (size_t i = 0; i < elements; ++i) sent_[i] = element(place.rank, i);
    }
    weftResult_t issue(weftStream_t stream, bool) override {
        if (partner_ >= place_.ranks) return weftSuccess;
        const auto send = [&] {
            return weftSend(sent_.data(), sent_.size(), weftInt32, partner_, place_.comm, stream);
        };
        const auto receive = [&] {
            return weftRecv(received_.data(), received_.size(), weftInt32, partner_, place_.comm, stream);
        };
        // Outside a group each waits for its counterpart.
        const bool first = place_.rank < partner_;
        const weftResult_t result = first ? send() : receive();
        return !fine(result) ? result : first ? receive() : send();
    }
    std::string fault() override {
        for (size_t i = 0; i < received_.size() && partner_ < place_.ranks; ++i)
            if (received_[i] != element(partner_, i)) return "what the partner sent is not what came";
        return "";
    }

  private:
    int element(int rank, size_t index) const { return rank * 100'000 + number_ * 19 + int(index); }

    RandomPlace place_;
    int partner_, number_;
    std::vector<int> sent_, received_;
};

// No rank passes before the last has called. By the machine's clock, which all ranks read.
class BarrierStep : public RandomStep {
  public:
    explicit BarrierStep(const RandomPlace& place) : comm_(place.comm) {}
    weftResult_t issue(weftStream_t stream, bool in_group) override {
        called_ns_ = now_ns();
        const weftResult_t result = weftBarrier(comm_, stream);
        if (result == weftSuccess && !stream && !in_group) through_ns_ = now_ns();
        return result;
    }
    std::string fault() override {
        // On a stream, in a group, or on a communicator that does not block: it is done by now.
        if (through_ns_ == 0) through_ns_ = now_ns();
        int64_t last_ns = called_ns_;
        if (settled(comm_, weftAllReduce(&last_ns, &last_ns, 1, weftInt64, weftMax, comm_, nullptr)) != weftSuccess)
            return weftGetLastError(comm_);
        return through_ns_ >= last_ns ? "" : "a rank was through a barrier before the last had called it";
    }

  private:
    static int64_t now_ns() {
        return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    }

    weftComm_t comm_;
    int64_t called_ns_ = 0, through_ns_ = 0;
};

// Each rank puts into the next rank's window, waits for the previous rank's put, and reads a third rank's data.
class WindowStep : public RandomStep {
  public:
    WindowStep(const RandomPlace& place, int number, int index, std::mt19937& random)
        : place_(place), number_(number), index_(index), distance_(int(random() % uint32_t(place.ranks))) {
        put_.resize(random() % 2 ? random() % (RandomWindow::put_elements + 1) : random() % 9);
        first_ = random() % RandomWindow::read_elements;
        got_.resize(random() % (RandomWindow::read_elements - first_ + 1));
        signal_ = int(random() % WEFT_SIGNALS);
        context_ = int(random() % WEFT_SIGNAL_CONTEXTS);
        third_ = int(random() % uint32_t(place.ranks));
        for (size_t i = 0; i < put_.size(); ++i) put_[i] = element(place.rank, i);
    }
    // A rank carries out what comes by messages while it is in calls on the communicator: the barrier keeps all there.
    weftResult_t issue(weftStream_t stream, bool) override {
        const weftWaitSignalDesc_t wait{1, at(-distance_), signal_, context_};
        weftWindow_t window = place_.window->handle();
        const size_t read = first_ * sizeof(int);
        weftResult_t result =
            weftPutSignal(put_.data(), put_.size(), weftInt32, at(distance_), window, place_.window->put_offset(index_),
                          signal_, context_, 0, place_.comm, stream);
        if (fine(result)) result = weftWaitSignal(1, &wait, place_.comm, stream);
        if (fine(result))
            result = weftGet(got_.data(), got_.size(), weftInt32, third_, window, read, place_.comm, stream);
        return fine(result) ? weftBarrier(place_.comm, stream) : result;
    }
    std::string fault() override {
        std::string wrong;
        const int* const there = place_.window->put_place(index_);
        for (size_t i = 0; i < put_.size(); ++i)
            if (there[i] != element(at(-distance_), i)) wrong = "what was put is not in the window";
        for (size_t i = 0; i < got_.size(); ++i)
            if (got_[i] != RandomWindow::read_element(third_, first_ + i)) wrong = "a get has not what is there";
        // No rank puts again before all have looked.
        if (settled(place_.comm, weftBarrier(place_.comm, nullptr)) != weftSuccess)
            return weftGetLastError(place_.comm);
        return wrong;
    }

  private:
    int at(int distance) const { return (place_.rank + distance + place_.ranks) % place_.ranks; }
    int element(int rank, size_t index) const { return rank * 100'000 + number_ * 13 + int(index); }

    RandomPlace place_;
    int number_, index_, distance_, signal_, context_, third_;
    size_t first_;
    std::vector<int> put_, got_;
};

}  // namespace

RandomWindow::RandomWindow(int rank, int steps, bool shared)
    : elements_(read_elements + size_t(steps) * put_elements), shared_(shared) {
    void* memory = nullptr;
    if (shared)
        (void)weftHostAlloc(&memory, elements_ * sizeof(int));
    else
        memory = calloc(elements_, sizeof(int));
    if (!memory) abort();
    memory_ = static_cast<int*>(memory);
    for (size_t i = 0; i < read_elements; ++i) memory_[i] = read_element(rank, i);
}

RandomWindow::~RandomWindow() {
    if (left_) return;
    if (shared_)
        (void)weftMemFree(memory_);
    else
        free(memory_);
}

weftResult_t RandomWindow::open(weftComm_t comm) {
    return settled(comm, weftCommWindowRegister(comm, memory_, elements_ * sizeof(int), &handle_, WEFT_WIN_DEFAULT));
}

weftResult_t RandomWindow::close(weftComm_t comm) { return settled(comm, weftCommWindowDeregister(comm, handle_)); }

std::unique_ptr<RandomStep> draw_step(const Sequence& sequence, const RandomPlace& place, int number, int index,
                                      std::mt19937& random) {
    const auto elements = [&] { return random() % 2 ? random() % 5000 : random() % 9; };
    switch (random() % 10) {
        case 0: return std::make_unique<MessageStep>(place, number, elements());
        case 9: return std::make_unique<PairStep>(place, number, elements());
        case 1: return std::make_unique<UnevenStep>(sequence, place, number);
        case 2: return std::make_unique<WindowStep>(place, number, index, random);
        case 3: return std::make_unique<BarrierStep>(place);
        default: return std::make_unique<CollectiveStep>(sequence, place, number);
    }
}

}  // namespace weft::internal::test
