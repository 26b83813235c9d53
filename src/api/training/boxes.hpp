// boxes.hpp: reads the caller's arrays of weftTrainBox_t and weftTrainItem_t, of any version.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/checkpoint.hpp"
#include "src/train/checkpoint/staging.hpp"
#include "weft/train.h"

namespace weft::internal {

constexpr size_t elements_most = size_t(1) << 48;
constexpr size_t first_box_size = offsetof(weftTrainBox_t, extents) + sizeof(const size_t*);

// Boxes on a device get host memory of `staging`.
Status read_boxes(const char* function, const weftTrainBox_t* boxes, size_t count, train::Staging& staging,
                  std::vector<train::OwnBox>& read);
// Items become tensors of bytes.
Status read_items(const char* function, const weftTrainItem_t* items, size_t count, int rank,
                  std::vector<train::OwnBox>& read);

inline Status check_path(const char* function, const char* path, const char* name) {
    if (path && *path) return ok();
    return fail(error::argument_null, "{}: {} is NULL or empty: pass a path", function, name);
}

inline Status check_receiver(const char* function, const void* place, const char* name) {
    if (place) return ok();
    return fail(error::argument_null, "{}: {} is NULL", function, name);
}

}  // namespace weft::internal
