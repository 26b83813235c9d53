// init_perf.cpp: the time until all ranks have a communicator, from the last rank's entry to the last return, beside a
// bare barrier of the same ranks. Each round has new processes, because the first communicator of a process costs most.
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "command_line.hpp"
#include "src/base/printing.hpp"

namespace {

using weft::internal::print_error;
using weft::internal::print_output;

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Span {
    double begin = 0, end = 0;
};

// The times of a round, and a barrier of its ranks. Lives in memory that all processes map.
class Board {
  public:
    static Board* make(int ranks) {
        void* const memory = mmap(nullptr, bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? nullptr : new (memory) Board(ranks);
    }
    static void unmap(Board* board) { munmap(board, bytes(board->ranks_)); }

    // One rank's part. True: every call succeeded.
    bool take_part(int rank) {
        wait();
        if (rank == 0) failed_ = weftGetUniqueId(&id_) != weftSuccess;
        wait();
        if (failed_) return complain(rank);
        spans(barrier)[rank].begin = now_ms();
        wait();
        spans(barrier)[rank].end = now_ms();
        wait();
        weftComm_t comm = nullptr;
        spans(init)[rank].begin = now_ms();
        if (weftCommInitRank(&comm, ranks_, id_, rank) != weftSuccess) return complain(rank);
        spans(init)[rank].end = now_ms();
        wait();
        spans(destroy)[rank].begin = now_ms();
        if (weftCommDestroy(comm) != weftSuccess) return complain(rank);
        spans(destroy)[rank].end = now_ms();
        return true;
    }

    enum Phase { barrier, init, destroy, phases };
    // From the last rank's entry to the last return.
    double time(Phase phase) {
        double entry = 0, leave = 0;
        for (int rank = 0; rank < ranks_; ++rank) {
            entry = std::max(entry, spans(phase)[rank].begin);
            leave = std::max(leave, spans(phase)[rank].end);
        }
        return leave - entry;
    }

  private:
    explicit Board(int ranks) : ranks_(ranks) {
        pthread_barrierattr_t shared;
        pthread_barrierattr_init(&shared);
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&meeting_, &shared, unsigned(ranks));
        pthread_barrierattr_destroy(&shared);
        for (int i = 0; i < phases * ranks; ++i) new (spans(Phase(0)) + i) Span();
    }
    static size_t bytes(int ranks) { return sizeof(Board) + size_t(phases) * size_t(ranks) * sizeof(Span); }
    void wait() { pthread_barrier_wait(&meeting_); }
    Span* spans(Phase phase) { return reinterpret_cast<Span*>(this + 1) + phase * ranks_; }
    static bool complain(int rank) {
        print_error("init_perf: rank {}: {}\n", rank, weftGetLastError(nullptr));
        return false;
    }

    int ranks_;
    pthread_barrier_t meeting_;
    weftUniqueId id_;
    bool failed_ = false;
};

// The process ends at once if a rank fails: the others may wait for it.
int run_threads(Board& board, int ranks) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&board, rank] {
            if (!board.take_part(rank)) _exit(1);
        });
    for (std::thread& thread : threads) thread.join();
    return 0;
}

// Runs the parts in new processes. False: one of them failed, and the rest are ended.
template <class Part>
bool in_processes(int count, Part&& part) {
    std::vector<pid_t> children;
    bool good = true;
    for (int i = 0; good && i < count; ++i) {
        const pid_t child = fork();
        if (child == 0) _exit(part(i));
        if (child < 0) print_error("init_perf: process {} of {} could not be made\n", i + 1, count);
        good = child > 0;
        if (good) children.push_back(child);
    }
    for (size_t left = good ? children.size() : 0; good && left > 0; --left) {
        int status = 0;
        good = wait(&status) > 0 && status == 0;
        if (WIFSIGNALED(status)) print_error("init_perf: a process was ended by signal {}\n", WTERMSIG(status));
    }
    if (good) return true;
    for (const pid_t child : children) kill(child, SIGKILL);
    while (wait(nullptr) > 0) {
    }
    return false;
}

double median(std::vector<double> numbers) {
    std::nth_element(numbers.begin(), numbers.begin() + ptrdiff_t(numbers.size() / 2), numbers.end());
    return numbers[numbers.size() / 2];
}

// How the ranks run: threads of one process, processes of one host, or processes that each claim to be a host.
enum class Place { threads, processes, hosts };
struct Setting {
    Place place = Place::threads;
    std::string namespaces;  // of hosts: the name of rank 0's network namespace is this with a 0 behind; empty: none
};

int run_process(Board& board, int rank, const Setting& setting) {
    if (setting.place == Place::hosts) setenv("WEFT_HOSTID", fmt::format("node{}", rank).c_str(), 1);
    if (!setting.namespaces.empty()) {
        const std::string file = fmt::format("/run/netns/{}{}", setting.namespaces, rank);
        const int own = open(file.c_str(), O_RDONLY | O_CLOEXEC);
        if (own < 0 || setns(own, CLONE_NEWNET) != 0) {
            print_error("init_perf: rank {} cannot enter {}: {}\n", rank, file, weft::internal::errno_text(errno));
            return 1;
        }
        close(own);
    }
    return board.take_part(rank) ? 0 : 1;
}

bool measure(int ranks, const Setting& setting, int rounds) {
    std::vector<double> times[Board::phases];
    for (int round = 0; round < rounds; ++round) {
        Board* const board = Board::make(ranks);
        if (!board) {
            print_error("init_perf: no memory for {} ranks\n", ranks);
            return false;
        }
        const bool good = setting.place == Place::threads
                              ? in_processes(1, [&](int) { return run_threads(*board, ranks); })
                              : in_processes(ranks, [&](int rank) { return run_process(*board, rank, setting); });
        for (int phase = 0; good && phase < Board::phases; ++phase)
            times[phase].push_back(board->time(Board::Phase(phase)));
        Board::unmap(board);
        if (!good) return false;
    }
    static constexpr const char* names[] = {"threads", "processes", "hosts"};
    const std::vector<double>& init = times[Board::init];
    print_output("{:>6} {:>10} {:>10.1f} {:>10.1f} {:>12.2f} {:>11.1f}\n", ranks, names[int(setting.place)],
                 median(init), *std::max_element(init.begin(), init.end()), median(times[Board::barrier]),
                 median(times[Board::destroy]));
    weft::internal::flush_output();
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<int> ranks = {2, 16, 64, 256};
    bool processes = false, hosts = false;
    int rounds = 5;
    CLI::App app("The time until all ranks have a communicator.", "init_perf");
    app.add_option("-n,--ranks", ranks, "numbers of ranks, one row each")->check(CLI::Range(1, 4096));
    app.add_flag("-p,--processes", processes, "each rank is a process; otherwise a thread");
    app.add_flag("--hosts", hosts, "each rank is a process that claims to be a host of its own (WEFT_HOSTID)");
    Setting setting;
    app.add_option("--namespaces", setting.namespaces,
                   "rank N of --hosts enters the network namespace NAMEN first (as root; `ip netns add`)")
        ->needs("--hosts");
    app.add_option("-r,--rounds", rounds, "rounds of each row, in new processes")->check(CLI::Range(1, 10'000));
    if (const auto status = perf::parse_command_line(app, argc, argv)) return *status;
    print_output(
        "# init_perf: weftCommInitRank, from the last rank's entry to the last return, over {} rounds\n"
        "{:>6} {:>10} {:>10} {:>10} {:>12} {:>11}\n",
        rounds, "ranks", "as", "median ms", "most ms", "barrier ms", "destroy ms");
    setting.place = hosts ? Place::hosts : processes ? Place::processes : Place::threads;
    bool good = true;
    for (size_t row = 0; good && row < ranks.size(); ++row) good = measure(ranks[row], setting, rounds);
    return weft::internal::status_after_output("init_perf", good ? 0 : 1);
}
