// What all pages of a tenant share. The pages work without it, unless they say otherwise.

// Scroll the current section into view where the navigation is wider than the screen.
document.querySelector(".tabs a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
