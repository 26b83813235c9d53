#include "tests/fake_cuda/multiprocessors.hpp"

#include "tests/fake_cuda/time_slices.hpp"

#include <algorithm>

namespace weft::internal::fake {

namespace {

int warps_threads(unsigned threads) { return int((threads + 31) / 32 * 32); }
int registers_of(const Grid& grid) { return warps_threads(grid.threads) * grid.registers; }

}  // namespace

void Grid::sync() {
    std::unique_lock lock(meeting);
    const unsigned round = rounds;
    if (++arrived == blocks) {
        arrived = 0;
        ++rounds;
        met.notify_all();
        return;
    }
    met.wait(lock, [&] { return rounds != round; });
}

int Multiprocessors::residency(unsigned threads, unsigned shared_bytes, int registers) {
    const int allotted = std::max(32, warps_threads(threads));
    const int blocks =
        std::min({Limits::blocks, Limits::threads / allotted, Limits::registers / (allotted * registers)});
    // A kilobyte of every block is the system's.
    return std::min(blocks, int(Limits::shared_bytes / (shared_bytes + 1024)));
}

bool Multiprocessors::holds(const Grid& grid) const {
    return uint64_t(residency(grid.threads, grid.shared_bytes, grid.registers)) * free_.size() >= grid.blocks;
}

bool Multiprocessors::Room::fits(const Grid& grid) const {
    return blocks > 0 && threads >= warps_threads(grid.threads) && shared_bytes >= grid.shared_bytes + 1024 &&
           registers >= registers_of(grid);
}
void Multiprocessors::Room::take(const Grid& grid) {
    --blocks;
    threads -= warps_threads(grid.threads);
    shared_bytes -= grid.shared_bytes + 1024;
    registers -= registers_of(grid);
}
void Multiprocessors::Room::give_back(const Grid& grid) {
    ++blocks;
    threads += warps_threads(grid.threads);
    shared_bytes += grid.shared_bytes + 1024;
    registers += registers_of(grid);
}

bool Multiprocessors::has_room_for_all(const Grid& grid) const {
    unsigned places = 0;
    for (Room room : free_)
        for (; room.fits(grid) && places < grid.blocks; ++places) room.take(grid);
    return places == grid.blocks;
}

void Multiprocessors::dispatch() {
    while (!waiting_.empty()) {
        const std::shared_ptr<Grid> grid = waiting_.front();
        if (grid->begun == 0) {
            if (resident_ == Limits::grids || (grid->cooperative && !has_room_for_all(*grid))) return;
            ++resident_;
        }
        // The emptiest multiprocessor first, as a device spreads its blocks.
        for (; grid->begun < grid->blocks; ++grid->begun) {
            const auto room = std::max_element(free_.begin(), free_.end(), [](const Room& one, const Room& other) {
                return one.threads < other.threads;
            });
            auto place = room;
            if (!place->fits(*grid))
                place = std::find_if(free_.begin(), free_.end(), [&](const Room& each) { return each.fits(*grid); });
            if (place == free_.end()) return;
            place->take(*grid);
            ++running_;
            const size_t number = size_t(place - free_.begin());
            grid->running.emplace_back([this, grid, block = grid->begun, number] { run_block(grid, block, number); });
        }
        waiting_.pop_front();
    }
}

void Multiprocessors::run_block(const std::shared_ptr<Grid>& grid, unsigned block, size_t place) {
    if (TimeSlices* const slices = TimeSlices::of_process()) {
        const TimeSlices::Turns turns(*slices);
        grid->run(block);
    } else {
        grid->run(block);
    }
    std::lock_guard lock(mutex_);
    free_[place].give_back(*grid);
    --running_;
    if (++grid->ended == grid->blocks) --resident_;
    dispatch();
    changed_.notify_all();
}

void Multiprocessors::run(const std::shared_ptr<Grid>& grid) {
    std::vector<std::thread> ended;
    {
        std::unique_lock lock(mutex_);
        waiting_.push_back(grid);
        dispatch();
        changed_.wait(lock, [&] { return grid->ended == grid->blocks; });
        ended = std::move(grid->running);
    }
    for (std::thread& thread : ended) thread.join();
}

void Multiprocessors::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.empty() && resident_ == 0; });
}

int Multiprocessors::running() {
    std::lock_guard lock(mutex_);
    return running_;
}

}  // namespace weft::internal::fake
