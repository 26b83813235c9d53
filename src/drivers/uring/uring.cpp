#include "src/drivers/uring/uring.hpp"

#include <liburing.h>

#include <cerrno>

#include "src/drivers/library.hpp"

namespace weft::internal::uring {

namespace {

struct UringFunctions {
#define WEFT_URING_FUNCTION(name) decltype(&::name) name = nullptr;
#include "src/drivers/uring/uring.def"
#undef WEFT_URING_FUNCTION
};

Result<UringFunctions> uring_functions() {
    constexpr const char* name = "liburing.so.2";  // of all versions from 2.0 on; the header's structs are its ABI
    Result<DynamicLibrary> library = DynamicLibrary::open(name);
    if (!library) return fail(error::driver_missing, "no liburing: {}", library.status().sentence());
    UringFunctions all;
    bool found = true;
#define WEFT_URING_FUNCTION(name)                                         \
    all.name = reinterpret_cast<decltype(&::name)>(library->find(#name)); \
    found = found && all.name != nullptr;
#include "src/drivers/uring/uring.def"
#undef WEFT_URING_FUNCTION
    if (!found) return fail(error::driver_missing, "no liburing: {} is another library", name);
    library->keep();
    return all;
}

class LiburingRing : public Ring {
  public:
    explicit LiburingRing(const UringFunctions& functions) : functions_(functions) {}
    ~LiburingRing() override {
        if (made_) functions_.io_uring_queue_exit(&ring_);
    }
    Status init(unsigned entries) {
        const int error = functions_.io_uring_queue_init(entries, &ring_, 0);
        if (error < 0)
            return fail(error::system_call, "io_uring cannot be used: io_uring_setup: {}", errno_text(-error));
        made_ = true;
        return ok();
    }

    Status submit(const Transfer& transfer, uint64_t tag) override {
        io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
        if (!entry) return fail(error::system_call, "io_uring has no free entry");
        io_uring_prep_rw(transfer.writes ? IORING_OP_WRITE : IORING_OP_READ, entry, transfer.file, transfer.memory,
                         unsigned(transfer.bytes), transfer.place);
        entry->user_data = tag;
        int submitted;
        do submitted = functions_.io_uring_submit(&ring_);
        while (submitted == -EINTR);
        if (submitted < 0) return fail(error::system_call, "io_uring refuses a transfer: {}", errno_text(-submitted));
        return ok();
    }
    Result<Completion> next() override {
        io_uring_cqe* found = nullptr;
        int error;
        do error = functions_.__io_uring_get_cqe(&ring_, &found, 0, 1, nullptr);
        while (error == -EINTR);
        if (error < 0) return fail(error::system_call, "io_uring cannot wait: {}", errno_text(-error));
        const Completion completion{found->user_data, found->res};
        io_uring_cqe_seen(&ring_, found);
        return completion;
    }

  private:
    UringFunctions functions_;
    io_uring ring_ = {};
    bool made_ = false;
};

}  // namespace

Result<std::unique_ptr<Ring>> make_ring(unsigned entries) {
    auto functions = uring_functions();
    if (!functions) return functions.take_status();
    auto ring = std::make_unique<LiburingRing>(*functions);
    WEFT_TRY(ring->init(entries));
    return std::unique_ptr<Ring>(std::move(ring));
}

}  // namespace weft::internal::uring
