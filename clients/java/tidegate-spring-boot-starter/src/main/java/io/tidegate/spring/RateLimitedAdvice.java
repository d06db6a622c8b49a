package io.tidegate.spring;

import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ControllerAdvice;
import org.springframework.web.bind.annotation.ExceptionHandler;

/** Answers requests whose handler called a {@link RateLimited} method that was refused. */
@ControllerAdvice
public class RateLimitedAdvice {
  /** Creates the handler. */
  public RateLimitedAdvice() {}

  /**
   * Returns the response to a refused request.
   *
   * @param refused the refusal
   * @return the response
   */
  @ExceptionHandler
  public ResponseEntity<byte[]> handle(RateLimitedException refused) {
    HttpHeaders headers = new HttpHeaders();
    refused.headers().forEach(headers::set);
    return new ResponseEntity<>(refused.body(), headers, HttpStatusCode.valueOf(refused.status()));
  }
}
