// message_counts.hpp: the kernel that reads an all-to-all's counts from device memory. One block writes the messages to
// the table before they move. If the counts are invalid, the call ends here and nothing moves.
#pragma once
#include "src/gpu/kernels/count_faults.hpp"
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/message_arguments.hpp"

namespace weft::internal::cuda {

class CountReader {
  public:
    WEFT_DEVICE CountReader(const Team& team, const MessageArguments& arguments)
        : team_(team), a_(arguments), c_(arguments.counts) {}

    // If this kernel or an earlier one has failed, the next kernel moves nothing.
    WEFT_DEVICE void run() const {
        if (load_relaxed(&a_.own->failed) != 0) return;
        for (int i = team_.thread; i < a_.queue_count; i += team_.threads) write(a_.queues[i]);
        const CountFaults faults(c_, a_.rank, a_.ranks);
        CountFault fault;
        for (int pair = team_.thread; pair < faults.pairs(); pair += team_.threads)
            if (faults.find(pair, fault)) return report(a_, fault);
    }

  private:
    WEFT_DEVICE void write(const MessageQueue& queue) const {
        const bool sends = queue.kind == MessageQueue::outgoing;
        const uint64_t bytes = (sends ? c_.sent : c_.received)[queue.peer] * c_.element;
        MessageItem item{nullptr, nullptr, bytes, c_.mark};
        // The displacement of an empty part is ignored.
        const uint64_t from = bytes == 0 ? 0 : c_.send_places[queue.peer] * c_.element;
        const uint64_t to = bytes == 0 ? 0 : c_.receive_places[queue.peer] * c_.element;
        if (sends) {
            item.data = c_.send + from;
            if (c_.remote_sends[queue.peer] && item.bytes >= c_.zero_copy_least)
                item.other = c_.remote_sends[queue.peer] + from;
        } else {
            item.data = c_.receive + to;
            if (queue.kind == MessageQueue::own) item.other = c_.send + from;
        }
        a_.table[queue.first] = item;
    }

    // As KernelBarrier::fail().
    static WEFT_DEVICE_COLD void report(const MessageArguments& a, CountFault fault) {
        if (!claim(&a.own->failed, uint32_t(KernelFailure::counts) | (a.launch & 0xffffff) << 8)) return;
        *a.message_report = {true, fault.outgoing, false, 0, 0, fault.report};
        FailureReport& report = *a.report;
        report.waiting = KernelWait::nothing;
        report.rank = a.rank;
        report.peer = fault.peer;
        report.fingerprint = a.counts.mark;
        store_release(reinterpret_cast<uint32_t*>(&report.failure), uint32_t(KernelFailure::counts));
    }

    const Team team_;
    const MessageArguments& a_;
    const MessageCounts& c_;
};

}  // namespace weft::internal::cuda
