// device_filter.hpp: a user's list of RDMA devices: `dev[:port[:rail[:plane]]]`, separated by commas. A name is a prefix.
// A list may begin with ^ (all but these), = (whole names), or ^= (all but these whole names). A value.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::verbs {

struct DeviceWish {
    std::string name;
    int port = -1, rail = -1, plane = -1;  // -1: any
};

class DeviceFilter {
  public:
    // Admits every device.
    DeviceFilter() = default;
    // `variable` is the name of the option, for the sentences. option.value.
    static Result<DeviceFilter> read(const char* variable, std::string_view text);
    // option.names: a wish fits none of the existing devices; the sentence suggests a similar name.
    Status check(std::span<const std::string> existing) const;
    const char* variable() const { return variable_; }
    bool admits(std::string_view device, int port) const;
    // The first wish that fits, with its rail and plane; null: none, or the list excludes.
    const DeviceWish* wish(std::string_view device, int port) const;

  private:
    bool fits(const DeviceWish& wish, std::string_view device) const;
    const DeviceWish* first(std::string_view device, int port) const;

    const char* variable_ = "";
    bool excludes_ = false, exact_ = false;
    std::vector<DeviceWish> wishes_;
};

}  // namespace weft::internal::verbs
