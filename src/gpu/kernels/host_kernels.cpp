#include "src/gpu/kernels/host_kernels.hpp"

#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/multicast.hpp"
#include "src/gpu/kernels/packets.hpp"
#include "src/gpu/kernels/peer_one_shot.hpp"
#include "src/gpu/kernels/peer_two_shot.hpp"
#include "src/gpu/kernels/steps.hpp"

namespace weft::internal::cuda {

namespace {

struct Bodies {
    HostKernel of[weftNumTypes][2];  // by type; index 1: sums
};

#define WEFT_DATATYPE(type, name, bytes) {WEFT_BODY<type, false>, WEFT_BODY<type, true>},
#define WEFT_BODY packet_one_shot
constexpr Bodies packet_one_shots{{
#include "src/base/datatype.def"
}};
#undef WEFT_BODY
#define WEFT_BODY packet_two_shot
constexpr Bodies packet_two_shots{{
#include "src/base/datatype.def"
}};
#undef WEFT_BODY
#define WEFT_BODY peer_two_shot
constexpr Bodies peer_two_shots{{
#include "src/base/datatype.def"
}};
#undef WEFT_BODY
#define WEFT_BODY peer_one_shot
constexpr Bodies peer_one_shots{{
#include "src/base/datatype.def"
}};
#undef WEFT_BODY
#define WEFT_BODY local_reduce
constexpr Bodies local_reduces{{
#include "src/base/datatype.def"
}};
#undef WEFT_BODY
#define WEFT_BODY steps
constexpr Bodies step_machines{{
#include "src/base/datatype.def"
}};
#undef WEFT_BODY
#undef WEFT_DATATYPE
template <weftDataType_t type>
constexpr HostKernel multicast_of() {
    if constexpr (has_entry_point(Body::multicast, type, true)) return multicast<type, true>;
    return nullptr;
}
#define WEFT_DATATYPE(type, name, bytes) {nullptr, multicast_of<type>()},
constexpr Bodies multicasts{{
#include "src/base/datatype.def"
}};
#undef WEFT_DATATYPE

const Bodies& bodies_of(Body body) {
    switch (body) {
        case Body::packet_one_shot: return packet_one_shots;
        case Body::packet_two_shot: return packet_two_shots;
        case Body::peer_two_shot: return peer_two_shots;
        case Body::peer_one_shot: return peer_one_shots;
        case Body::local_reduce: return local_reduces;
        case Body::steps: return step_machines;
        case Body::multicast: return multicasts;
    }
    __builtin_unreachable();
}

}  // namespace

HostKernel host_kernel(Body body, weftDataType_t type, bool adds) { return bodies_of(body).of[type][adds]; }

HostKernel find_host_kernel(std::string_view name) {
    for (int body = 0; body < body_count; ++body)
        for (int type = 0; type < weftNumTypes; ++type)
            for (const bool adds : {false, true})
                if (entry_point(Body(body), weftDataType_t(type), adds) == name)
                    return host_kernel(Body(body), weftDataType_t(type), adds);
    return nullptr;
}

}  // namespace weft::internal::cuda
