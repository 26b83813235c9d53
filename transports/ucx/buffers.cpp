#include "transports/ucx/buffers.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/segment/shm_layout.hpp"

namespace weft::internal::ucx {

void Buffers::Freed::operator()(std::byte* memory) const { free(memory); }

Result<std::shared_ptr<Buffers>> Buffers::make(const Library& library, int depth, size_t slot_bytes) {
    auto buffers = std::make_shared<Buffers>();
    const size_t count = size_t(depth);
    buffers->stride_ = round_to_line(std::max<size_t>(slot_bytes, 1));
    const size_t whole = buffers->stride_ * count;
    buffers->memory_.reset(static_cast<std::byte*>(aligned_alloc(line_bytes, whole)));
    if (!buffers->memory_)
        return fail(error::memory_exhausted, "there is no memory for a connection's slots of {} bytes", whole);
    memset(buffers->memory_.get(), 0, whole);
    buffers->transfers.resize(count);
    buffers->headers.resize(count);
    buffers->part_headers_.resize(count * (slot_bytes / part_bytes));
    buffers->credit_transfers.resize(count);
    buffers->credits.resize(count);
    buffers->library_ = &library;
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = buffers->memory_.get();
    params.length = whole;
    if (const ucs_status_t status = library.ucp_mem_map(library.context, &params, &buffers->handle_); status != UCS_OK)
        return fail(
            error::ucx_broken,
            "UCX cannot register {} bytes for a connection's slots: {}; `ulimit -l` limits the memory that NICs "
            "may use",
            whole, library.text(status));
    return buffers;
}

Buffers::~Buffers() {
    if (handle_) (void)library_->ucp_mem_unmap(library_->context, handle_);
}

bool Buffers::active() const {
    const auto is_active = [](const Transfer& transfer) { return transfer.active > 0; };
    return flush.active > 0 || std::any_of(transfers.begin(), transfers.end(), is_active) ||
           std::any_of(credit_transfers.begin(), credit_transfers.end(), is_active);
}

}  // namespace weft::internal::ucx
