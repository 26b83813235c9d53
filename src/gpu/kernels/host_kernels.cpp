#include "src/gpu/kernels/host_kernels.hpp"

#include <array>
#include <utility>

#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/multicast/multicast.hpp"
#include "src/gpu/kernels/packets/packet_two_shot.hpp"
#include "src/gpu/kernels/packets/packets.hpp"
#include "src/gpu/kernels/peer_one_shot.hpp"
#include "src/gpu/kernels/peer_two_shot.hpp"
#include "src/gpu/kernels/steps.hpp"

namespace weft::internal::cuda {

namespace {

template <Body body, weftDataType_t type, bool adds>
constexpr HostKernel kernel_of() {
    if constexpr (!has_entry_point(body, type, adds)) return nullptr;
#define WEFT_KERNEL(name, needs, help) else if constexpr (body == Body::name) return name<type, adds>;
#include "src/gpu/kernels/kernel.def"
#undef WEFT_KERNEL
}

constexpr size_t index_of(Body body, weftDataType_t type, bool adds) {
    return (size_t(body) * size_t(weftNumTypes) + size_t(type)) * 2 + size_t(adds);
}
template <size_t... index>
constexpr std::array<HostKernel, sizeof...(index)> all_kernels(std::index_sequence<index...>) {
    return {kernel_of<Body(index / 2 / weftNumTypes), weftDataType_t(index / 2 % weftNumTypes), index % 2 != 0>()...};
}
constexpr auto kernels = all_kernels(std::make_index_sequence<size_t(body_count) * size_t(weftNumTypes) * 2>());

}  // namespace

HostKernel host_kernel(Body body, weftDataType_t type, bool adds) { return kernels[index_of(body, type, adds)]; }

HostKernel find_host_kernel(std::string_view name) {
    for (int body = 0; body < body_count; ++body)
        for (int type = 0; type < weftNumTypes; ++type)
            for (const bool adds : {false, true})
                if (entry_point(Body(body), weftDataType_t(type), adds) == name)
                    return host_kernel(Body(body), weftDataType_t(type), adds);
    return nullptr;
}

}  // namespace weft::internal::cuda
