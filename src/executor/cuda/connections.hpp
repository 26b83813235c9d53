// connections.hpp: where the connections of a communicator's step machines lie, and the programs that run over them.
// Each rank has an area in memory that all its peers reach; agreed facts alone say what lies where in it, so that each
// rank reckons the addresses of both ends of a connection by itself. Knows no driver.
//
// Every algorithm has connections of its own: their messages are counted from operation to operation, and who has ended
// one operation may fill slots for the next, by another algorithm, while a peer still empties those of the first.
#pragma once
#include <span>
#include <vector>

#include "src/executor/cuda/kernel_arguments.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::cuda {

// A value; made the same on all ranks.
class Connections {
  public:
    // A block copies 20 bytes a nanosecond at most, and a flag takes a microsecond or two from one device to the other:
    // with smaller slots flags would count, with larger ones the memory.
    static constexpr size_t slot_bytes = 256 << 10;

    // One algorithm more, of which these are the schedules by rank, which the device can run (program.hpp).
    void add(std::vector<Schedule> schedules);

    size_t area_bytes() const { return area_bytes_; }        // of each rank; zero before the first operation
    size_t program_bytes() const { return program_bytes_; }  // of each rank, for its own kernels
    // What a rank's kernels find at their program memory. areas: by rank, as these kernels address them.
    std::vector<std::byte> programs(int rank, std::span<std::byte* const> areas) const;
    // The program of the algorithm that was the `index`-th to be added. `programs`: that memory.
    void bind(KernelArguments& arguments, size_t index, const std::byte* programs) const;

  private:
    struct Group {
        std::vector<Schedule> schedules;  // by rank
        size_t words, slots, program;     // offsets
        uint32_t depth;
    };
    static size_t step_blocks_offset(const Schedule& schedule);
    StepBlock with_connections(const Group& group, const Schedule& schedule, size_t index,
                               std::span<std::byte* const> areas) const;

    std::vector<Group> groups_;
    size_t area_bytes_ = 0, program_bytes_ = 0;
};

}  // namespace weft::cuda
