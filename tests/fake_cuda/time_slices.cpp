#include "tests/fake_cuda/time_slices.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <thread>

#include "tests/fake_cuda/world.hpp"

namespace weft::internal::fake {

namespace {

std::atomic<bool> our_turn{false};
int stop_signal() { return SIGRTMIN + 5; }

void nap(int microseconds) {
    const timespec little{0, microseconds * 1000L};
    nanosleep(&little, nullptr);
}

}  // namespace

TimeSlices* TimeSlices::of_process() {
    static TimeSlices* const made = [] {
        std::lock_guard lock(world().mutex);
        const Setting& setting = world().setting;
        return setting.slices.empty() ? nullptr : new TimeSlices(setting.slices, setting.slice_ms);
    }();
    return made;
}

TimeSlices::TimeSlices(const std::string& file, int slice_ms) : slice_ms_(slice_ms) {
    const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) throw std::runtime_error("fake CUDA driver: no file " + file);
    void* const page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) throw std::runtime_error("fake CUDA driver: cannot map " + file);
    shared_ = static_cast<Shared*>(page);
    for (auto& process : shared_->processes) {
        int nobody = 0;
        if (own_ == nullptr && process.pid.compare_exchange_strong(nobody, getpid())) own_ = &process;
    }
    if (own_ == nullptr) throw std::runtime_error("fake CUDA driver: too many processes take turns");
    struct sigaction action {};
    action.sa_handler = await_turn;
    action.sa_flags = SA_RESTART;
    sigaction(stop_signal(), &action, nullptr);
    std::thread([this] { serve(); }).detach();
}

void TimeSlices::await_turn(int) {
    const int error = errno;
    while (!our_turn.load(std::memory_order_acquire)) nap(50);
    errno = error;
}

// A turn that nobody has, or a dead process.
bool TimeSlices::take() {
    int owner = shared_->owner.load();
    if (own_->blocks.load() == 0 || (owner != 0 && kill(owner, 0) == 0)) return false;
    return shared_->owner.compare_exchange_strong(owner, getpid());
}

// To the next process that has blocks. If there is none, this one goes on, or leaves the turn to nobody.
void TimeSlices::pass() {
    constexpr int all = sizeof shared_->processes / sizeof *own_;
    const auto place = int(own_ - shared_->processes);
    int next = 0;
    for (int distance = 1; distance < all && next == 0; ++distance) {
        const Shared::Process& process = shared_->processes[(place + distance) % all];
        const int pid = process.pid.load();
        if (process.blocks.load() > 0 && kill(pid, 0) == 0) next = pid;
    }
    if (next == 0 && own_->blocks.load() > 0) return;
    our_turn.store(false, std::memory_order_release);
    {
        std::lock_guard lock(mutex_);
        for (const pthread_t block : blocks_) pthread_kill(block, stop_signal());
    }
    shared_->turns.fetch_add(1);
    shared_->owner.store(next);
}

// It holds no lock of the process while the blocks are stopped, for a stopped one may hold any other.
void TimeSlices::serve() {
    for (;;) {
        if (shared_->owner.load() != getpid() && !take()) {
            nap(100);
            continue;
        }
        our_turn.store(true, std::memory_order_release);
        for (int millisecond = 0; millisecond < slice_ms_; ++millisecond) nap(1000);
        pass();
    }
}

// A block is not stopped here, where it holds the lock that stopping takes.
template <class Change>
void TimeSlices::change(Change&& change) {
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, stop_signal());
    pthread_sigmask(SIG_BLOCK, &stop, &before);
    {
        std::lock_guard lock(mutex_);
        change();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TimeSlices::Turns::Turns(TimeSlices& of) : slices_(of) {
    slices_.change([&] { slices_.blocks_.insert(pthread_self()); });
    slices_.own_->blocks.fetch_add(1);
    await_turn(0);
}

TimeSlices::Turns::~Turns() {
    slices_.change([&] { slices_.blocks_.erase(pthread_self()); });
    slices_.own_->blocks.fetch_sub(1);
}

}  // namespace weft::internal::fake
