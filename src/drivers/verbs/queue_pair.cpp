#include "src/drivers/verbs/queue_pair.hpp"

#include <algorithm>
#include <cerrno>

#include "src/drivers/verbs/refusal.hpp"

namespace weft::internal::verbs {

namespace {

constexpr int rnr_timer = 12;           // 0.64 ms until a sender without a receive request tries again
constexpr int rnr_retries_endless = 7;  // the peer's credits prevent it: a stall is better than an error
constexpr size_t request_bytes = 256;   // about what a device pins for a request

Status check_limits(const Context& context, const QueuePairOptions& options) {
    const abi::DeviceLimits& limits = context.facts().limits;
    const int requests = std::max(options.send_requests, options.receive_requests);
    if (requests > limits.pair_requests)
        return fail(error::verbs_call, "{} has queues of {} requests at most; {} are needed", context.facts().name,
                    limits.pair_requests, requests);
    const int sges = std::max(options.send_sges, options.receive_sges);
    if (sges > limits.sges)
        return fail(error::verbs_call, "a request of {} has {} pieces at most; {} are needed", context.facts().name,
                    limits.sges, sges);
    return ok();
}

// The likely cause of an errno value of the change to RTR.
const char* path_hint(int error) {
    switch (error) {
        case ETIMEDOUT:
            return "nothing answers at the peer's address: look at the link, the VLAN and the peer's interface";
        case ENETUNREACH:
        case EHOSTUNREACH: return "this host has no route to the peer's address";
        case EINVAL: return "the GIDs do not fit together, or the GID's index is no longer valid";
        case ENODEV: return "the network device of the GID is gone or belongs to another network namespace";
        default: return "look at the state of the port";
    }
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::make(const ProtectionDomain& domain, const CompletionQueue& sends,
                                                   const CompletionQueue& receives, const QueuePairOptions& options) {
    const Context& context = domain.context();
    WEFT_TRY(check_limits(context, options));
    abi::PairInit init{};
    abi::Pair* pair = nullptr;
    // Devices that support less inline data refuse with EINVAL and do not name what they support.
    for (int bytes = std::max(options.inline_bytes, 0); pair == nullptr; bytes /= 2) {
        init = {nullptr,
                sends.get(),
                receives.get(),
                nullptr,
                {uint32_t(options.send_requests), uint32_t(options.receive_requests), uint32_t(options.send_sges),
                 uint32_t(options.receive_sges), uint32_t(bytes)},
                pair_type_rc,
                0};
        errno = 0;
        pair = context.functions().ibv_create_qp(domain.get(), &init);
        if (pair == nullptr && (errno != EINVAL || bytes == 0)) break;
    }
    if (pair == nullptr) {
        const int error = errno;
        const size_t pinned = size_t(options.send_requests + options.receive_requests) * request_bytes;
        return refused(context,
                       fmt::format("a queue pair of {} and {} requests (it has room for {} queue pairs)",
                                   options.send_requests, options.receive_requests, context.facts().limits.pairs),
                       pinned, error);
    }
    return std::unique_ptr<QueuePair>(new QueuePair(domain, pair, int(init.limits.max_inline_data)));
}

QueuePair::~QueuePair() { functions().ibv_destroy_qp(pair_); }

Status QueuePair::modify(abi::PairAttributes& attributes, int mask, const char* state) {
    if (const int error = functions().ibv_modify_qp(pair_, &attributes, mask))
        return refused(domain_.context(), fmt::format("to bring queue pair {:#x} to {}", number(), state), 0, error);
    return ok();
}

// The device may have less than the wish.
int QueuePair::reads(const PathOptions& options) const {
    return std::clamp(domain_.context().facts().limits.reads[0], 1, std::clamp(options.reads, 1, 255));
}

Status QueuePair::init(int port, int pkey_index, int access) {
    abi::PairAttributes attributes{};
    attributes.state = state::init;
    attributes.times.port_num = uint8_t(port);
    attributes.pkey_index[0] = uint16_t(pkey_index);
    attributes.access = uint32_t(access);
    return modify(attributes, attribute::state | attribute::pkey_index | attribute::port | attribute::access, "INIT");
}

Status QueuePair::receive_from(const PathEnd& own, const PathEnd& peer, const PathOptions& options) {
    Result<abi::Address> address = path_address(own, peer, options);
    if (!address) return address.take_status();
    abi::PairAttributes attributes{};
    attributes.state = state::ready_to_receive;
    attributes.mtu = path_mtu(own, peer);
    attributes.numbers.dest_qp_num = peer.pair;
    attributes.numbers.rq_psn = peer.sequence;
    attributes.max_dest_rd_atomic = uint8_t(reads(options));
    attributes.times.min_rnr_timer = rnr_timer;
    attributes.address[0] = *address;
    constexpr int mask = attribute::state | attribute::address | attribute::path_mtu | attribute::dest_qp_num |
                         attribute::rq_psn | attribute::max_dest_rd_atomic | attribute::min_rnr_timer;
    if (const int error = functions().ibv_modify_qp(pair_, &attributes, mask))
        return fail(error::verbs_path, "{} finds no path to {}: {}; {}", described(own), described(peer),
                    errno_text(error), path_hint(error));
    return ok();
}

Status QueuePair::begin_sending(const PathEnd& own, const PathOptions& options) {
    abi::PairAttributes attributes{};
    attributes.state = state::ready_to_send;
    attributes.numbers.sq_psn = own.sequence;
    attributes.max_rd_atomic = uint8_t(reads(options));
    attributes.times.timeout = uint8_t(options.timeout);
    attributes.times.retry_cnt = uint8_t(options.retries);
    attributes.times.rnr_retry = rnr_retries_endless;
    return modify(attributes,
                  attribute::state | attribute::timeout | attribute::retry_cnt | attribute::rnr_retry |
                      attribute::sq_psn | attribute::max_rd_atomic,
                  "RTS");
}

Status QueuePair::fail_requests() {
    abi::PairAttributes attributes{};
    attributes.state = state::error;
    return modify(attributes, attribute::state, "ERR");
}

Status QueuePair::reset() {
    abi::PairAttributes attributes{};
    attributes.state = state::reset;
    return modify(attributes, attribute::state, "RESET");
}

Result<int> QueuePair::state() const {
    abi::PairAttributes attributes{};
    abi::PairInit init{};
    if (const int error = functions().ibv_query_qp(pair_, &attributes, attribute::state, &init))
        return refused(domain_.context(), fmt::format("to tell the state of queue pair {:#x}", number()), 0, error);
    return attributes.state;
}

std::optional<abi::Ece> QueuePair::ece() const {
    abi::Ece ece{};
    if (functions().ibv_query_ece == nullptr || functions().ibv_query_ece(pair_, &ece) != 0) return {};
    return ece;
}

bool QueuePair::set_ece(const abi::Ece& ece) {
    abi::Ece wish = ece;
    return functions().ibv_set_ece != nullptr && functions().ibv_set_ece(pair_, &wish) == 0;
}

}  // namespace weft::internal::verbs
