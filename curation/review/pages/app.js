// The page of `captioning app`: a photo's captions, and the suspected captions of a set, if there are any.

function showPart(name) {
  for (const part of ["photo", "review"]) {
    byId(`${part}-part`).hidden = part !== name;
    byId(`to-${part}`).setAttribute("aria-pressed", String(part === name));
  }
}

async function begin() {
  const start = await ask("api/start", {});
  openPhotos(start);
  if (start.review) openReview(start.review);
  byId("tabs").hidden = !start.review;
  for (const part of ["photo", "review"]) byId(`to-${part}`).addEventListener("click", () => showPart(part));
  showPart(start.review ? "review" : "photo");
  document.body.dataset.ready = "yes";
}

begin().catch((error) => say(`${error.message} (reload the page)`, true));
