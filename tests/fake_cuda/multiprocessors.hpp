// multiprocessors.hpp: a fake device's multiprocessors: which blocks of which kernels run at the same time. A block has
// a thread. A grid begins when all blocks of earlier grids have begun, and its blocks wait for room. Two kernels that
// wait for each other and do not fit together therefore hang, as on a device.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::internal::fake {

struct Limits {
    static constexpr int threads = 2048, blocks = 32, grids = 128;  // of a multiprocessor; of a device at once
    static constexpr int registers = 65536;
    static constexpr unsigned shared_bytes = 228 * 1024, shared_block_bytes = 227 * 1024, shared_default = 48 * 1024;
};

// One launch.
struct Grid {
    unsigned blocks = 1;
    unsigned threads = 1;       // of a block
    unsigned shared_bytes = 0;  // of a block
    int registers = 32;         // of a thread
    bool cooperative = false;
    std::function<void(unsigned block)> run;

    // The device's, under its lock.
    unsigned begun = 0, ended = 0;
    std::vector<std::thread> running;
    // Of cooperative launches.
    std::mutex meeting;
    std::condition_variable met;
    unsigned arrived = 0, rounds = 0;
    void sync();
};

class Multiprocessors {
  public:
    explicit Multiprocessors(int count) : free_(size_t(count)) {}
    // Blocks of this form that one multiprocessor holds.
    static int residency(unsigned threads, unsigned shared_bytes, int registers);
    bool holds(const Grid& grid) const;
    // Returns when all its blocks have ended.
    void run(const std::shared_ptr<Grid>& grid);
    // Returns when nothing runs or waits.
    void drain();
    // Blocks at this moment.
    int running();

  private:
    struct Room {
        int threads = Limits::threads, blocks = Limits::blocks;
        unsigned shared_bytes = Limits::shared_bytes;
        int registers = Limits::registers;
        bool fits(const Grid& grid) const;
        void take(const Grid& grid);
        void give_back(const Grid& grid);
    };
    bool has_room_for_all(const Grid& grid) const;
    void dispatch();  // under the lock
    void run_block(const std::shared_ptr<Grid>& grid, unsigned block, size_t place);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Room> free_;
    std::deque<std::shared_ptr<Grid>> waiting_;
    int resident_ = 0;  // grids that have begun and not ended
    int running_ = 0;   // their blocks
};

}  // namespace weft::internal::fake
