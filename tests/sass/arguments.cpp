// arguments.cpp: writes the arguments of a kernel for an all-reduce of 8 ranks to standard output, for times.py. The bits of
// an address from 40 on are the kind of memory. Then follow two offsets in RankFlags: the end of the barrier's words and
// the epoch of block 0.
// usage: arguments BYTES
#include <cstdio>
#include <cstdlib>

#include "src/gpu/kernels/kernel_arguments.hpp"

using namespace weft::internal::cuda;

namespace {

template <class Pointer>
Pointer at(uint64_t kind, int rank = 0) {
    return reinterpret_cast<Pointer>(kind << 40 | uint64_t(rank) << 32);
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) return 2;
    KernelArguments arguments{};
    arguments.rank = 3;
    arguments.ranks = 8;
    arguments.fingerprint = 1;
    arguments.bytes = strtoull(words[1], nullptr, 10);
    arguments.domain = true;
    arguments.own = at<RankFlags*>(1, 3);
    for (int rank = 0; rank < 8; ++rank) {
        arguments.flags[rank] = at<RankFlags*>(1, rank);
        arguments.packets[rank] = at<PacketLine*>(2, rank);
    }
    arguments.send = at<const std::byte*>(3);
    arguments.receive = at<std::byte*>(4);
    const uint64_t offsets[] = {sizeof(RankFlags::barrier), offsetof(RankFlags, epoch)};
    const bool written =
        fwrite(&arguments, sizeof arguments, 1, stdout) == 1 && fwrite(offsets, sizeof offsets, 1, stdout) == 1;
    return written && fclose(stdout) == 0 ? 0 : 1;
}
