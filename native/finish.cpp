#include "finish.h"

#include <cstring>

namespace unstarve {
namespace {

template <typename Item, typename Lookup>
void write_row(const std::uint8_t *pixels, std::size_t y, const Target &target, Lookup lookup) {
    auto *const items = reinterpret_cast<Item *>(target.data);
    if (target.channels_last) {
        Item *const row = items + y * target.width * 3;
        for (std::size_t x = 0; x < target.width; ++x) {
            for (std::size_t channel = 0; channel < 3; ++channel) {
                row[x * 3 + channel] = lookup(channel, pixels[x * 4 + channel]);
            }
        }
        return;
    }
    for (std::size_t channel = 0; channel < 3; ++channel) {
        Item *const row = items + (channel * target.height + y) * target.width;
        for (std::size_t x = 0; x < target.width; ++x) {
            row[x] = lookup(channel, pixels[x * 4 + channel]);
        }
    }
}

template <typename Item>
void look_up_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    const auto *const table = reinterpret_cast<const Item *>(target.table);
    write_row<Item>(pixels, y, target,
                    [table](std::size_t channel, std::uint8_t value) { return table[channel * 256 + value]; });
}

}  // namespace

void finish_row(const std::uint8_t *pixels, std::size_t y, const Target &target) {
    if (target.table == nullptr) {
        write_row<std::uint8_t>(pixels, y, target, [](std::size_t, std::uint8_t value) { return value; });
    } else if (target.item_bytes == 4) {
        look_up_row<std::uint32_t>(pixels, y, target);
    } else {
        look_up_row<std::uint16_t>(pixels, y, target);
    }
}

}  // namespace unstarve
