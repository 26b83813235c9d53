#include "src/gpu/kernels/device_code.hpp"

// The symbols come from fatbins.S.
#define WEFT_FATBIN(name)                                                                  \
    extern "C" [[gnu::visibility("hidden")]] const std::byte weft_##name##_fatbin_begin[]; \
    extern "C" [[gnu::visibility("hidden")]] const std::byte weft_##name##_fatbin_end[]
WEFT_FATBIN(packet);
WEFT_FATBIN(peer);
WEFT_FATBIN(step);
WEFT_FATBIN(message);
WEFT_FATBIN(access);
WEFT_FATBIN(optimizer);
WEFT_FATBIN(convert);
WEFT_FATBIN(codec);
WEFT_FATBIN(hook);
WEFT_FATBIN(multicast);

namespace weft::internal::cuda {

std::span<const DeviceCode> device_code() {
    static const DeviceCode all[] = {
        {"packet", {weft_packet_fatbin_begin, weft_packet_fatbin_end}},
        {"peer", {weft_peer_fatbin_begin, weft_peer_fatbin_end}},
        {"step", {weft_step_fatbin_begin, weft_step_fatbin_end}},
        {"message", {weft_message_fatbin_begin, weft_message_fatbin_end}},
        {"access", {weft_access_fatbin_begin, weft_access_fatbin_end}},
        {"convert", {weft_convert_fatbin_begin, weft_convert_fatbin_end}},
        {"multicast", {weft_multicast_fatbin_begin, weft_multicast_fatbin_end}},
        {"codec", {weft_codec_fatbin_begin, weft_codec_fatbin_end}},
    };
    return all;
}

const DeviceCode* optimizer_code() {
    static const DeviceCode code = {"optimizer", {weft_optimizer_fatbin_begin, weft_optimizer_fatbin_end}};
    return &code;
}

const DeviceCode* hook_code() {
    static const DeviceCode code = {"hook", {weft_hook_fatbin_begin, weft_hook_fatbin_end}};
    return &code;
}

const char* device_code_targets() { return "@WEFT_GPU_TARGETS@"; }

}  // namespace weft::internal::cuda
