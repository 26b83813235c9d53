// message_form.hpp: which codec a hook's messages have. A value.
#pragma once
#include "src/train/hooks/codecs.hpp"
#include "weft/train.h"

namespace weft::internal::train {

struct MessageForm {
    weftTrainCompression_t method = weftTrainInt8;  // or OneBit, Float8
    size_t block = 256;                             // int8
    weftDataType_t float8 = weftFloat8e4m3;

    template <class Body>
    auto with_codec(Body&& body) const {
        if (method == weftTrainOneBit) return body(OneBitCodec());
        if (method == weftTrainFloat8) return body(Float8Codec(float8));
        return body(Int8Codec(block));
    }
    size_t part_unit(int ranks) const {
        return with_codec([&](const Codec& codec) { return codec.part_unit(ranks); });
    }
    size_t bytes(size_t count) const {
        return with_codec([&](const Codec& codec) { return codec.bytes(count); });
    }
};

}  // namespace weft::internal::train
